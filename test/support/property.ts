// Runs a property of fast-check as one assertion, with the smallest counterexample and the seed in its name.
import fc from 'fast-check';
import type { Test } from 'tap';

/** The predicate throws (`node:assert`) or gives false where the property does not hold. */
export function holds<Values>(t: Test, property: fc.IProperty<Values>, numRuns = 500): void {
  const details = fc.check(property, { numRuns });
  t.ok(!details.failed, fc.defaultReportMessage(details) ?? `held ${details.numRuns} times`);
}
