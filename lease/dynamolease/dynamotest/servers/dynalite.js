// Serves DynamoDB from memory until stdin ends, which it does with the test.
'use strict'
const dynalite = require('dynalite')

const ms = 10
dynalite({ createTableMs: ms, deleteTableMs: ms, updateTableMs: ms }).listen(process.env.PORT, '127.0.0.1')
process.stdin.on('end', () => process.exit(0)).resume()
