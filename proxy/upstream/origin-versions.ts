// What is known of each origin's HTTP versions.
import { formatAuthority } from '../../model/authority.ts';
import { ORIGINS_REMEMBERED_MAX } from '../../model/limits.ts';
import type { Destination } from '../exchange.ts';

/**
 * From the handshakes: the version that was agreed on, or that HTTP/1.1 was refused. `http/1.1-required` is the origin's
 * word after it had agreed on HTTP/2 (HTTP_1_1_REQUIRED, RFC 9113 section 7).
 */
type Known = 'h2' | 'http/1.1' | 'h2-only' | 'http/1.1-required';

export class OriginVersions {
  readonly #known = new Map<string, Known>();

  of({ authority }: Pick<Destination, 'authority'>): Known | undefined {
    return this.#known.size === 0 ? undefined : this.#known.get(formatAuthority(authority));
  }

  remember({ authority }: Pick<Destination, 'authority'>, known: Known): void {
    const key = formatAuthority(authority);
    this.#known.delete(key);
    this.#known.set(key, known);
    if (this.#known.size > ORIGINS_REMEMBERED_MAX) this.#known.delete(this.#known.keys().next().value as string);
  }

  /** A handshake for both versions ended in HTTP/2. What was learned by other means it can't tell, and does not undo. */
  rememberHttp2(destination: Pick<Destination, 'authority'>): void {
    const known = this.of(destination);
    if (known !== 'h2-only' && known !== 'http/1.1-required') this.remember(destination, 'h2');
  }
}
