// What a case of the benchmark is.
import type { CaseResult } from './report.ts';
import type { Scene } from './scene.ts';

export interface BenchContext {
  readonly scene: Scene;
  /** Fewer and shorter rounds, to see that everything works; its figures are rough. */
  readonly isQuick: boolean;
  /** Says what is being done. */
  readonly say: (text: string) => void;
}

export interface BenchCase {
  readonly name: string;
  readonly summary: string;
  run(context: BenchContext): Promise<CaseResult>;
}

/** Rounds by the length of the run. */
export function roundsOf({ isQuick }: BenchContext, full: number): number {
  return isQuick ? Math.min(3, full) : full;
}
