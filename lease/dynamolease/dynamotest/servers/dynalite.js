// Serves DynamoDB from memory until stdin ends, which it does with the test.
'use strict'
const dynalite = require('dynalite')

const ms = 10
const server = dynalite({ createTableMs: ms, deleteTableMs: ms, updateTableMs: ms })
// A client that is killed within a request makes dynalite throw, which ends it.
server.on('request', req => req.removeAllListeners('error').on('error', () => {}))
server.listen(process.env.PORT, '127.0.0.1')
process.stdin.on('end', () => process.exit(0)).resume()
