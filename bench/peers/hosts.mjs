// Loaded before a proxy by --import: names under bench.test are this machine, as an entry in its hosts file would say.
import dns from 'node:dns';
import { syncBuiltinESMExports } from 'node:module';

const { lookup } = dns;

/**
 * @param {string} host
 * @param {unknown} options
 * @param {unknown} callback
 */
function lookupHere(host, options, callback) {
  return Reflect.apply(lookup, dns, [host.endsWith('.bench.test') ? '127.0.0.1' : host, options, callback]);
}

dns.lookup = /** @type {typeof dns.lookup} */ (/** @type {unknown} */ (lookupHere));
syncBuiltinESMExports();
