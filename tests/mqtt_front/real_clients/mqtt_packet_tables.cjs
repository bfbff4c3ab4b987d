// Prints the tables of mqtt-packet's own tests as lines of JSON, without running them. The argument is its folder.
'use strict'
const fs = require('fs')
const path = require('path')

const folder = process.argv[2]
const source = fs.readFileSync(path.join(folder, 'test.js'), 'utf8')

function tell (kind, name, bytes, object, options) {
  // One packet has 256 MB, which no peer takes.
  if (!Buffer.isBuffer(bytes) || bytes.length > 1 << 20) return
  const { cmd, protocolVersion, messageId, topic, payload, qos, retain, dup, clientId } = object || {}
  const version = (options && options.protocolVersion) || protocolVersion || 4
  const told = { kind, name, version, hex: bytes.toString('hex') }
  if (object) {
    told.packet = { cmd, messageId, topic, qos, retain, dup }
    if (clientId !== undefined) told.packet.clientId = String(clientId)
    if (payload !== undefined && payload !== null) told.packet.payload = Buffer.from(payload).toString('hex')
  }
  process.stdout.write(JSON.stringify(told) + '\n')
}

const takers = {
  testParseGenerate: (name, object, bytes, options) => tell('packet', name, bytes, object, options),
  testParseGenerateDefaults: (name, object, bytes, _, options) => tell('packet', name, bytes, object, options),
  testParseAndGenerate: (name, object, bytes, options) => tell('packet', name, bytes, object, options),
  testParseOnly: (name, object, bytes, options) => tell('packet', name, bytes, object, options),
  testGenerateOnly: (name, object, bytes, options) => tell('packet', name, bytes, object, options),
  testParseError: (name, bytes, options) => tell('error', name, bytes, null, options),
  testGenerateError: () => {},
  testGenerateErrorMultipleCmds: () => {},
  testWriteToStreamError: () => {}
}

// The functions of the file that run its tables give way to these.
const renamed = source.replace(/^function (test[A-Z]\w*)/gm, 'function replaced_$1')
const stubs = { tape: () => {}, 'readable-stream': { Writable: class {} }, './': require(folder), util: require('util') }
const names = Object.keys(takers)
// eslint-disable-next-line no-new-func
const run = new Function('require', 'process', 'console', ...names, renamed)
run((name) => stubs[name] || {}, { on: () => {}, version: process.version }, { log: () => {} }, ...names.map((name) => takers[name]))
