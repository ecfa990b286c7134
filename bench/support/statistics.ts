// Medians, percentiles and spreads.

export interface Spread {
  readonly min: number;
  readonly median: number;
  readonly max: number;
}

/** The value below which a share (0 to 1) of the values lies. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

export function spreadOf(values: readonly number[]): Spread {
  return { min: Math.min(...values), median: percentile(values, 0.5), max: Math.max(...values) };
}

/** Round by round, since what slows a machine down slows neighbouring measurements down alike. */
export function ratios(values: readonly number[], bases: readonly number[]): number[] {
  return values.map((value, index) => value / (bases[index] as number));
}
