// Both servers listen on every interface. Loaded first, this keeps them on
// 127.0.0.1 whatever they ask for.
'use strict'
const net = require('net')
const listen = net.Server.prototype.listen

net.Server.prototype.listen = function (first, ...rest) {
  const done = rest.filter((a) => typeof a === 'function')
  const options = first !== null && typeof first === 'object' ? first : { port: Number(first) }
  return listen.call(this, { ...options, host: '127.0.0.1' }, ...done)
}
