// Loaded into Keyveil by `npm run bench -- --check --plant=N`: burns so many microseconds of CPU for each request.
import { Server } from 'node:http';
import process from 'node:process';

const CALIBRATION_TURNS = 200_000_000;
let sink = 0;

/** @param {number} turns */
function burn(turns) {
  for (let index = 0; index < turns; index += 1) sink = (sink + index) | 0;
}

burn(CALIBRATION_TURNS / 10);
const before = process.cpuUsage();
burn(CALIBRATION_TURNS);
const used = process.cpuUsage(before);
const turnsPerUs = CALIBRATION_TURNS / (used.user + used.system);
const turnsPerRequest = Math.round(turnsPerUs * Number(process.env.BENCH_PLANTED_US));

const { emit } = Server.prototype;
Server.prototype.emit = function (name, ...args) {
  if (name === 'request') burn(turnsPerRequest);
  return Reflect.apply(emit, this, [name, ...args]);
};
