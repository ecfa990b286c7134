// What is known of each origin's HTTP versions.
import { performance } from 'node:perf_hooks';
import { formatAuthority } from '../../model/authority.ts';
import { HTTP1_REQUIRED_REMEMBERED_MS, ORIGINS_REMEMBERED_MAX } from '../../model/limits.ts';
import type { Destination } from '../exchange.ts';

/**
 * From the handshakes: the version that was agreed on, or that HTTP/1.1 was refused. `http/1.1-required` is the origin's
 * word after it had agreed on HTTP/2 (HTTP_1_1_REQUIRED, RFC 9113 section 7), and holds for a time: an origin that says so
 * by mistake, or for one of its servers, is asked again.
 */
type Known = 'h2' | 'http/1.1' | 'h2-only' | 'http/1.1-required';

export class OriginVersions {
  readonly #known = new Map<string, Known>();
  /** Milliseconds of `#now` until which an origin's `http/1.1-required` holds. */
  readonly #requiredUntil = new Map<string, number>();
  readonly #now: () => number;

  /** `now`: milliseconds that never go back. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  of({ authority }: Pick<Destination, 'authority'>): Known | undefined {
    if (this.#known.size === 0) return undefined;
    const key = formatAuthority(authority);
    const known = this.#known.get(key);
    if (known !== 'http/1.1-required' || (this.#requiredUntil.get(key) as number) > this.#now()) return known;
    this.#forget(key);
    return undefined;
  }

  remember({ authority }: Pick<Destination, 'authority'>, known: Known): void {
    const key = formatAuthority(authority);
    this.#forget(key);
    this.#known.set(key, known);
    if (known === 'http/1.1-required') this.#requiredUntil.set(key, this.#now() + HTTP1_REQUIRED_REMEMBERED_MS);
    if (this.#known.size > ORIGINS_REMEMBERED_MAX) this.#forget(this.#known.keys().next().value as string);
  }

  /** The origin wanted HTTP/1.1, and does not speak it: its word is taken back at once. */
  doubtHttp1(destination: Pick<Destination, 'authority'>): void {
    if (this.of(destination) === 'http/1.1-required') this.#forget(formatAuthority(destination.authority));
  }

  #forget(key: string): void {
    this.#known.delete(key);
    this.#requiredUntil.delete(key);
  }

  /** A handshake for both versions ended in HTTP/2. What was learned by other means it can't tell, and does not undo. */
  rememberHttp2(destination: Pick<Destination, 'authority'>): void {
    const known = this.of(destination);
    if (known !== 'h2-only' && known !== 'http/1.1-required') this.remember(destination, 'h2');
  }
}
