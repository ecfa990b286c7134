// What is fuzzed, and the loop that does it: kept inputs first, then new ones from a seed, for as long as is asked.
import { readFileSync, writeFileSync } from 'node:fs';
import { inspect } from 'node:util';
import { createRandom } from './http1-codec-corpus.ts';

export type Random = () => number;

/** One thing that is fuzzed, opened. Inputs are JSON, so that they can be kept. */
export interface FuzzTarget<Input = unknown> {
  make(random: Random): Input;
  /** Resolves with what is wrong, in words; null when all is well. */
  attempt(input: Input): Promise<string | null>;
  close(): Promise<void>;
}

export type OpenTarget = () => Promise<FuzzTarget>;

export interface FuzzOptions {
  readonly name: string;
  readonly seed: number;
  /** No new input is begun after so many, or after so many seconds. */
  readonly inputsMax: number;
  readonly secondsMax: number;
  /** Whether inputs that fail are added to the kept ones. */
  readonly keeps: boolean;
}

export interface FuzzResult {
  readonly kept: number;
  readonly count: number;
  readonly faults: readonly string[];
}

const FAULTS_MAX = 10;
const FAULT_CHARACTERS_MAX = 2000;

/** Kept inputs of a target: `corpus/NAME.json`. */
function corpusUrl(name: string): URL {
  return new URL(`corpus/${name}.json`, import.meta.url);
}

/** An item of a list. */
export function pick<Item>(items: readonly Item[], random: Random): Item {
  return items[Math.floor(random() * items.length)] as Item;
}

/** A whole number from 0 to below `end`. */
export function below(end: number, random: Random): number {
  return Math.floor(random() * end);
}

/** One to four small changes of Latin-1 text: a byte, a token, a repetition, a cut, an end. */
export function mutateText(text: string, tokens: readonly string[], random: Random): string {
  let mutated = text;
  for (let count = 1 + below(4, random); count > 0; count -= 1) {
    const at = below(mutated.length + 1, random);
    const middle = [
      () => String.fromCharCode(below(256, random)),
      () => pick(tokens, random),
      () => mutated.slice(at, at + below(24, random)),
      () => '',
    ][below(4, random)] as () => string;
    const skip = pick([0, 0, 1, 1, 1 + below(8, random), random() < 0.05 ? mutated.length : 0], random);
    mutated = mutated.slice(0, at) + middle() + mutated.slice(at + skip);
  }
  return mutated;
}

/** The text in up to `most` pieces, cut anywhere. */
export function cutText(text: string, most: number, random: Random): string[] {
  const offsets = Array.from({ length: below(most, random) }, () => below(text.length + 1, random));
  const ends = [...offsets.sort((a, b) => a - b), text.length];
  return ends.map((end, index) => text.slice(ends[index - 1] ?? 0, end)).filter((piece) => piece !== '');
}

/** Runs a target; resolves when the time is over, the inputs are done or too many faults were found. */
export async function fuzz(target: FuzzTarget, options: FuzzOptions): Promise<FuzzResult> {
  const corpus = JSON.parse(readFileSync(corpusUrl(options.name), 'utf8')) as unknown[];
  const known = corpus.length;
  const random = createRandom(options.seed);
  const until = performance.now() + options.secondsMax * 1000;
  const faults: string[] = [];
  let unhandled: unknown = null;
  const onUnhandled = (error: unknown): void => void (unhandled = error);
  process.on('uncaughtException', onUnhandled);
  process.on('unhandledRejection', onUnhandled);
  const attempt = async (input: unknown): Promise<boolean> => {
    const thrown = await target.attempt(input).catch((error: unknown) => inspect(error));
    const fault = unhandled === null ? thrown : `unhandled: ${inspect(unhandled)}`;
    unhandled = null;
    if (fault === null) return true;
    faults.push(`${fault.slice(0, FAULT_CHARACTERS_MAX)}\n  ${JSON.stringify(input).slice(0, FAULT_CHARACTERS_MAX)}`);
    return false;
  };
  let count = 0;
  try {
    for (const input of corpus.slice(0, known)) await attempt(input);
    for (; count < options.inputsMax && performance.now() < until && faults.length < FAULTS_MAX; count += 1) {
      const input = target.make(random);
      if (await attempt(input)) continue;
      corpus.push(input);
      if (options.keeps) writeFileSync(corpusUrl(options.name), `${JSON.stringify(corpus, null, 2)}\n`);
    }
  } finally {
    process.off('uncaughtException', onUnhandled);
    process.off('unhandledRejection', onUnhandled);
  }
  return { kept: known, count, faults };
}
