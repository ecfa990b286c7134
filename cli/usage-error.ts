// What was typed is wrong.

/** A mistake in what was typed: one line, exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}
