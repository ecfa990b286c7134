// Loaded into Keyveil by `npm run bench -- --check --plant=N`: burns so many microseconds of CPU for each request.
import { createHash } from 'node:crypto';
import process from 'node:process';
import { TLSSocket } from 'node:tls';

// Hashed, since the compiler has no say in what that costs: a loop of JavaScript is sometimes five times as fast.
const block = Buffer.alloc(4 * 1024 * 1024);
const CALLS = 2000;
const STEPS = 4;

/** @param {number} bytes */
function burn(bytes) {
  createHash('sha256').update(block.subarray(0, bytes)).digest();
}

/** Microseconds of CPU for one call. @param {number} bytes */
function costOf(bytes) {
  const before = process.cpuUsage();
  for (let call = 0; call < CALLS; call += 1) burn(bytes);
  const used = process.cpuUsage(before);
  return (used.user + used.system) / CALLS;
}

const plantedUs = Number(process.env.BENCH_PLANTED_US);
let bytesPerRequest = 16 * 1024;
for (let step = 0; step < STEPS; step += 1) {
  bytesPerRequest = Math.min(block.length, Math.round((bytesPerRequest * plantedUs) / costOf(bytesPerRequest)));
}

const FIRST_BYTE_OF_GET = 0x47;

// Whatever reads a request, it comes as data of a TLS connection.
const { emit } = TLSSocket.prototype;
TLSSocket.prototype.emit = function (name, ...args) {
  if (name === 'data' && args[0][0] === FIRST_BYTE_OF_GET) burn(bytesPerRequest);
  return Reflect.apply(emit, this, [name, ...args]);
};
