// Pages in br or gzip, five requests a second, and connections that close after 100 ms without a
// request. Usage: node peer.js HOST PORT, with the pages in the folder `site`.
'use strict'
const fs = require('node:fs')
const http = require('node:http')
const zlib = require('node:zlib')

let window = 0
let inWindow = 0

const server = http.createServer((request, response) => {
  const limited = request.url.startsWith('/limited/')
  const second = Math.floor(Date.now() / 1000)
  if (limited && second !== window) [window, inWindow] = [second, 0]
  if (limited && ++inWindow > 5) {
    response.writeHead(429, { 'Retry-After': '1' })
    return response.end('slow down')
  }
  fs.readFile(`site${request.url}`, (error, page) => {
    if (error) {
      response.writeHead(404)
      return response.end()
    }
    const accepted = request.headers['accept-encoding'] ?? ''
    const headers = { 'Content-Type': 'text/html' }
    if (/\bbr\b/.test(accepted)) {
      headers['Content-Encoding'] = 'br'
      page = zlib.brotliCompressSync(page)
    } else if (/\bgzip\b/.test(accepted)) {
      headers['Content-Encoding'] = 'gzip'
      page = zlib.gzipSync(page)
    }
    response.writeHead(200, headers)
    response.end(page)
  })
})
server.keepAliveTimeout = 100
server.listen(Number(process.argv[3]), process.argv[2])
