// What is looked for in one response: the compiled forms of the credentials that cover its host.
import { type Base64Form, base64Extent } from './base64-form.ts';
import { EscapedSearch } from './escaped-form.ts';
import type { BasicToken } from '../swap/headers.ts';
import type { LiteralForm, ValueForms } from './forms.ts';
import { LiteralSearch, startsWithAt } from './literal-search.ts';

/** An occurrence of a value in some form. */
export interface Hit {
  readonly start: number;
  readonly end: number;
  /** Number of its credential in the veil. */
  readonly credential: number;
  /** What takes its place; null for `*` of the same length. */
  readonly replacement: Buffer | null;
}

export interface VeilContents {
  /** Ids of the credentials, in the order of `forms`. */
  readonly credentialIds: readonly string[];
  readonly forms: readonly ValueForms[];
  /** Ids of covering credentials that could not be opened: their values pass. */
  readonly unopened: readonly string[];
}

const LINE_FEED = 0x0a;
/** Rough size of the objects that describe a literal. */
const LITERAL_BYTES = 250;

interface CompiledLiteral extends LiteralForm {
  readonly credential: number;
}

interface Compiled extends VeilContents {
  readonly literals: readonly CompiledLiteral[];
  readonly literalSearch: LiteralSearch;
  readonly escapedSearch: EscapedSearch;
  /** Numbers of the credentials whose values the escaped search has. */
  readonly escaped: readonly number[];
}

interface CompiledToken {
  readonly credential: number;
  readonly sent: Buffer;
  readonly original: Buffer;
}

/** Looks for values in whole pieces of a response. Immutable; safe to share between responses. */
export class Veil {
  readonly #compiled: Compiled;
  readonly #tokens: readonly CompiledToken[];
  /** Most bytes that one occurrence can take. */
  readonly longest: number;
  /** Whether a value holds a line feed, so that a line end does not end its occurrences. */
  readonly spansLines: boolean;

  private constructor(compiled: Compiled, tokens: readonly CompiledToken[]) {
    this.#compiled = compiled;
    this.#tokens = tokens;
    const lengths = [...compiled.forms.map(({ longest }) => longest), ...tokens.map(({ sent }) => sent.length)];
    this.longest = lengths.reduce((longest, length) => Math.max(longest, length), 1);
    this.spansLines = compiled.forms.some(({ value }) => value.includes(LINE_FEED));
  }

  static compile(contents: VeilContents): Veil {
    const { forms } = contents;
    const literals = forms.flatMap((form, credential) => form.literals.map((literal) => ({ ...literal, credential })));
    const escaped = forms.flatMap((form, credential) => (form.isEscapedToo ? [credential] : []));
    const compiled = {
      ...contents,
      literals,
      literalSearch: new LiteralSearch(literals.map(({ bytes }) => bytes)),
      escapedSearch: new EscapedSearch(escaped.map((credential) => (forms[credential] as ValueForms).value)),
      escaped,
    };
    return new Veil(compiled, []);
  }

  /** Size in memory; roughly. */
  get byteLength(): number {
    const { literals, literalSearch, escapedSearch } = this.#compiled;
    const bytes = literals.reduce((sum, literal) => sum + literal.bytes.length + LITERAL_BYTES, 0);
    return bytes + literalSearch.byteLength + escapedSearch.byteLength;
  }

  get unopened(): readonly string[] {
    return this.#compiled.unopened;
  }

  /** Of those whose values are looked for. */
  get credentialIds(): readonly string[] {
    return this.#compiled.credentialIds;
  }

  credentialId(credential: number): string {
    return this.#compiled.credentialIds[credential] as string;
  }

  /**
   * The same veil, which also gives back these Basic tokens as the client wrote them. Costs next to nothing: a token
   * holds its value in base64, which is looked for anyhow. Tokens of credentials that are not veiled are left out.
   */
  withBasicTokens(tokens: readonly BasicToken[]): Veil {
    const compiled = tokens.flatMap(({ credentialId, sent, original }) => {
      const credential = this.#compiled.credentialIds.indexOf(credentialId);
      return credential < 0
        ? []
        : [{ credential, sent: Buffer.from(sent, 'latin1'), original: Buffer.from(original, 'latin1') }];
    });
    return compiled.length === 0 ? this : new Veil(this.#compiled, [...this.#tokens, ...compiled]);
  }

  /** All occurrences that lie wholly in the data, by start, longer ones first; null for none. */
  find(data: Buffer): Hit[] | null {
    const literals = this.#compiled.literalSearch.scan(data);
    const escaped = this.#compiled.escapedSearch.scan(data);
    if (literals === null && escaped === null) return null;
    const hits: Hit[] = [];
    if (literals !== null) this.#addLiterals(literals, data, hits);
    if (escaped !== null) this.#addEscaped(escaped, hits);
    return hits.sort(
      (one, other) => one.start - other.start || other.end - one.end || one.credential - other.credential,
    );
  }

  #addLiterals(found: readonly number[], data: Buffer, hits: Hit[]): void {
    for (let index = 0; index < found.length; index += 2) {
      const literal = this.#compiled.literals[found[index] as number] as CompiledLiteral;
      const { credential, bytes, base64 } = literal;
      const offset = found[index + 1] as number;
      const { placeholder } = this.#compiled.forms[credential] as ValueForms;
      if (base64 === null) {
        hits.push({ start: offset, end: offset + bytes.length, credential, replacement: placeholder });
      } else {
        hits.push({ ...base64Extent(base64, placeholder, { data, offset }), credential });
        if (this.#tokens.length > 0) this.#addTokens(base64, { data, offset, credential }, hits);
      }
    }
  }

  #addTokens(form: Base64Form, at: { data: Buffer; offset: number; credential: number }, hits: Hit[]): void {
    for (const { credential, sent, original } of this.#tokens) {
      const start = at.offset - sent.indexOf(form.core);
      if (credential !== at.credential || start > at.offset || !startsWithAt(at.data, start, sent)) continue;
      hits.push({ start, end: start + sent.length, credential, replacement: original });
    }
  }

  #addEscaped(found: readonly number[], hits: Hit[]): void {
    for (let index = 0; index < found.length; index += 3) {
      const credential = this.#compiled.escaped[found[index] as number] as number;
      const { placeholder } = this.#compiled.forms[credential] as ValueForms;
      hits.push({
        start: found[index + 1] as number,
        end: found[index + 2] as number,
        credential,
        replacement: placeholder,
      });
    }
  }
}
