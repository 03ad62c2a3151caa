'use strict'
const kinesalite = require('kinesalite')

const ms = 20
kinesalite({ createStreamMs: ms, deleteStreamMs: ms, updateStreamMs: ms, shardLimit: 1000 }).listen(process.env.PORT)
