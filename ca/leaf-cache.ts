// Ready TLS contexts for hosts, at most so many, the least recently used one making room for the next.
import { constants, createHash, randomBytes } from 'node:crypto';
import { createSecureContext, DEFAULT_CIPHERS, type SecureContext } from 'node:tls';
import { CERTIFICATE_BACKDATE_DAYS, LEAF_CACHE_ENTRIES_MAX } from '../model/limits.ts';
import type { Clock, LeafSource } from '../model/ports.ts';
import { createLeafKey, mintLeaf } from './leaf.ts';
import { DAY_MS } from './root-material.ts';
import type { RootAuthority } from './root.ts';
import type { Issuer } from './x509.ts';

/** Size of TLS session ticket keys in bytes: name, MAC key and cipher key of 16 each. */
export const TICKET_KEY_BYTES = 48;
/** How long a client can resume a TLS session. */
const TLS_SESSION_SECONDS = 3600;
// The runtime's own list, this one first: its hash is the one that processors compute themselves (RFC 8446 appendix B.4).
const CHEAPEST_CIPHER = 'TLS_AES_128_GCM_SHA256';
const CIPHERS = DEFAULT_CIPHERS.split(':')
  .sort((a, b) => Number(b === CHEAPEST_CIPHER) - Number(a === CHEAPEST_CIPHER))
  .join(':');

export interface LeafCacheOptions {
  readonly clock: Clock;
  readonly entriesMax?: number;
  /**
   * 48 random bytes that seal TLS session tickets. Worker processes that share a port share them too, or a client
   * could resume only where it was before. Random when left out.
   */
  readonly ticketKeys?: Buffer;
}

interface LeafCacheStats {
  readonly entries: number;
  readonly hits: number;
  readonly mints: number;
}

/** The LeafSource of the proxy, with what its metrics show. */
export interface LeafCache extends LeafSource {
  stats(): LeafCacheStats;
}

interface Entry {
  readonly context: SecureContext;
  /** Used from and until, milliseconds since the epoch; a clock that was set back makes an entry unusable too. */
  readonly usedFrom: number;
  readonly usedUntil: number;
  /** Of all entries, the one with the lowest was used the longest ago. */
  lastUse: number;
}

interface Mint {
  readonly promise: Promise<SecureContext>;
  readonly resolve: (context: SecureContext) => void;
  readonly reject: (error: unknown) => void;
}

function createMint(): Mint {
  let resolve!: Mint['resolve'];
  let reject!: Mint['reject'];
  const promise = new Promise<SecureContext>((onMinted, onFailed) => {
    resolve = onMinted;
    reject = onFailed;
  });
  return { promise, resolve, reject };
}

class LruLeafCache implements LeafCache {
  readonly #root: Pick<RootAuthority, 'signer'>;
  readonly #clock: Clock;
  readonly #entriesMax: number;
  readonly #ticketKeys: Buffer;
  readonly #key = createLeafKey();
  readonly #entries = new Map<string, Entry>();
  /** In order of asking. */
  readonly #mints = new Map<string, Mint>();
  #signer: Issuer;
  #hitCount = 0;
  /** Counts up at each use of an entry. */
  #useCount = 0;
  #mintCount = 0;

  constructor(root: Pick<RootAuthority, 'signer'>, options: LeafCacheOptions) {
    this.#root = root;
    this.#clock = options.clock;
    this.#entriesMax = options.entriesMax ?? LEAF_CACHE_ENTRIES_MAX;
    this.#ticketKeys = options.ticketKeys ?? randomBytes(TICKET_KEY_BYTES);
    this.#signer = root.signer();
  }

  contextFor(host: string): SecureContext | Promise<SecureContext> {
    this.#followSigner();
    const entry = this.#entries.get(host);
    if (entry === undefined || !this.#isUsable(entry)) return this.#mintLater(host);
    entry.lastUse = this.#useCount++;
    this.#hitCount += 1;
    return entry.context;
  }

  stats(): LeafCacheStats {
    return { entries: this.#entries.size, hits: this.#hitCount, mints: this.#mintCount };
  }

  #followSigner(): void {
    const signer = this.#root.signer();
    if (signer === this.#signer) return;
    this.#signer = signer;
    this.#entries.clear();
  }

  #isUsable(entry: Entry): boolean {
    const now = this.#clock.now();
    return now >= entry.usedFrom && now < entry.usedUntil;
  }

  // One mint in each turn of the event loop: many new hosts at once must not hold up the tunnels that are open.
  #mintLater(host: string): Promise<SecureContext> {
    const underWay = this.#mints.get(host);
    if (underWay !== undefined) return underWay.promise;
    const mint = createMint();
    this.#mints.set(host, mint);
    if (this.#mints.size === 1) setImmediate(() => this.#mintNext());
    return mint.promise;
  }

  #mintNext(): void {
    const [host, mint] = this.#mints.entries().next().value as [string, Mint];
    this.#mints.delete(host);
    if (this.#mints.size > 0) setImmediate(() => this.#mintNext());
    try {
      mint.resolve(this.#mint(host));
    } catch (error) {
      mint.reject(error);
    }
  }

  #mint(host: string): SecureContext {
    this.#followSigner();
    const now = this.#clock.now();
    const leaf = mintLeaf(host, { issuer: this.#signer, key: this.#key, now });
    const context = this.#createContext(host, leaf.certificatePem);
    const usedFrom = now - (CERTIFICATE_BACKDATE_DAYS * DAY_MS) / 2;
    const usedUntil = now + (leaf.notAfter - now) / 2;
    this.#entries.set(host, { context, usedFrom, usedUntil, lastUse: this.#useCount++ });
    this.#mintCount += 1;
    if (this.#entries.size > this.#entriesMax) this.#dropLeastRecent();
    return context;
  }

  // An order of use that is kept at each use costs each connection more than a look at all costs each new host.
  #dropLeastRecent(): void {
    let [leastRecent, lastUse] = ['', Infinity];
    for (const [host, entry] of this.#entries) {
      if (entry.lastUse >= lastUse) continue;
      [leastRecent, lastUse] = [host, entry.lastUse];
    }
    this.#entries.delete(leastRecent);
  }

  #createContext(host: string, certificatePem: string): SecureContext {
    return createSecureContext({
      key: this.#key.privateKeyPem,
      cert: certificatePem,
      // No client certificate is ever asked for. Without this line each context would refer to all public roots, and
      // OpenSSL would look through them for the rest of the chain in every handshake.
      ca: [],
      minVersion: 'TLSv1.2',
      ciphers: CIPHERS,
      honorCipherOrder: true,
      // A handshake costs the server most: a client gets one for each connection.
      secureOptions: constants.SSL_OP_NO_RENEGOTIATION,
      ticketKeys: this.#ticketKeys,
      sessionTimeout: TLS_SESSION_SECONDS,
      // A session is resumed for the host that it was made for, and no other (RFC 6066 section 3). At most 32 bytes.
      sessionIdContext: createHash('sha256').update(host).digest('hex').slice(0, 32),
    });
  }
}

/** Creates the cache with a leaf key of its own. When another root signs, all leaves are minted anew. */
export function createLeafCache(root: Pick<RootAuthority, 'signer'>, options: LeafCacheOptions): LeafCache {
  return new LruLeafCache(root, options);
}
