// The certificate authority: opens or creates its root, signs with it, and rotates it with an overlap.
import type { X509Certificate } from 'node:crypto';
import { StartError } from '../model/errors.ts';
import type { CaControl, CaRoot, CaStatus, Clock, SealedItems } from '../model/ports.ts';
import { createRoot, formatRoots, nextCommonName, parseRoots, rootCommonName, type Root } from './root-material.ts';
import type { Issuer } from './x509.ts';

/** Both roots of an overlap are one item, so that a step of a rotation happens whole or not at all. */
const ITEM = 'ca/roots';

export interface RootOptions {
  readonly clock: Clock;
  /** This machine's name; it stands in the subject, for people who look at a list of trusted CAs. */
  readonly hostName: string;
}

/** What signs leaves and is exported to clients. */
export interface RootAuthority extends CaControl {
  /** Stays the same object until another root signs. */
  signer(): Issuer;
  /** What clients must trust, the signer first. */
  certificates(): readonly X509Certificate[];
  /** A number that is another one after each change of `certificates()`. */
  generation(): number;
  /** Reads what another process may have rotated or retired; true when anything had changed. */
  reload(): Promise<boolean>;
}

async function readRoots(items: SealedItems): Promise<readonly Root[] | null> {
  const sealed = await items.get(ITEM).catch((cause: unknown) => {
    throw new StartError(
      "The CA's root in the database can't be opened. Start with the master key that it was sealed with, or restore " +
        'the data directory from a backup. Nothing was changed or made anew.',
      { cause },
    );
  });
  return sealed === null ? null : parseRoots(sealed);
}

function describeRoot({ certificate, issuer }: Root): CaRoot {
  return {
    commonName: certificate.subject.replace(/^CN=/, ''),
    fingerprint: certificate.fingerprint256,
    notBefore: Date.parse(certificate.validFrom),
    notAfter: issuer.notAfter,
  };
}

function isSame(left: Root, right: Root | undefined): boolean {
  return left.certificate.fingerprint256 === right?.certificate.fingerprint256;
}

class StoredRootAuthority implements RootAuthority {
  readonly #items: SealedItems;
  readonly #options: RootOptions;
  #signer: Root;
  #next: Root | null;
  #generation = 1;
  #turn: Promise<unknown> = Promise.resolve();

  constructor(items: SealedItems, roots: readonly Root[], options: RootOptions) {
    this.#items = items;
    this.#options = options;
    this.#signer = roots[0] as Root;
    this.#next = roots[1] ?? null;
  }

  signer(): Issuer {
    return this.#signer.issuer;
  }

  certificates(): readonly X509Certificate[] {
    return this.#roots().map((root) => root.certificate);
  }

  generation(): number {
    return this.#generation;
  }

  status(): CaStatus {
    return { signer: describeRoot(this.#signer), next: this.#next === null ? null : describeRoot(this.#next) };
  }

  rotate(): Promise<CaStatus> {
    return this.#inTurn(async () => {
      await this.#read();
      if (this.#next === null) await this.#write([this.#signer, this.#createNext()]);
      return this.status();
    });
  }

  retire(): Promise<CaStatus> {
    return this.#inTurn(async () => {
      await this.#read();
      if (this.#next !== null) await this.#write([this.#next]);
      return this.status();
    });
  }

  reload(): Promise<boolean> {
    return this.#inTurn(async () => {
      const before = this.#generation;
      await this.#read();
      return this.#generation !== before;
    });
  }

  /** One step at a time in this process, whatever became of the one before. */
  #inTurn<T>(step: () => Promise<T>): Promise<T> {
    const result = this.#turn.then(step, step);
    this.#turn = result;
    return result;
  }

  #roots(): Root[] {
    return this.#next === null ? [this.#signer] : [this.#signer, this.#next];
  }

  // Two roots of one name would leave clients to guess which key a leaf was signed with.
  #createNext(): Root {
    const now = this.#options.clock.now();
    const name = rootCommonName(this.#options.hostName, now);
    return createRoot(nextCommonName(describeRoot(this.#signer).commonName, name), now);
  }

  async #read(): Promise<void> {
    const roots = await readRoots(this.#items);
    if (roots === null) throw new StartError("The CA's root is gone from the database. Restore it from a backup.");
    this.#adopt(roots);
  }

  async #write(roots: readonly Root[]): Promise<void> {
    await this.#items.put(ITEM, formatRoots(roots));
    this.#adopt(roots);
  }

  #adopt(roots: readonly Root[]): void {
    const current = this.#roots();
    if (roots.length === current.length && roots.every((root, index) => isSame(root, current[index]))) return;
    // What is known already keeps its object, by which the leaf cache sees that the signer is the same.
    const [signer, next] = roots.map((root) => current.find((known) => isSame(known, root)) ?? root);
    this.#signer = signer as Root;
    this.#next = next ?? null;
    this.#generation += 1;
  }
}

/**
 * Opens the CA's root, or creates it when the store holds none. To be called in one process before others are started.
 * Rejects with a StartError when what is stored can't be opened or is not a root of ours; it is then left as it is.
 */
export async function openRoot(items: SealedItems, options: RootOptions): Promise<RootAuthority> {
  const stored = await readRoots(items);
  if (stored !== null) return new StoredRootAuthority(items, stored, options);
  const now = options.clock.now();
  const root = createRoot(rootCommonName(options.hostName, now), now);
  await items.put(ITEM, formatRoots([root]));
  return new StoredRootAuthority(items, [root], options);
}
