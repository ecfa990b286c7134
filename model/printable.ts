// Makes text that a sandbox, an upstream or a file chose safe to print: no byte of it reaches a terminal as a command.

// Controls of C0 and C1 (terminal escapes), and what reorders or hides text (Unicode TR 36, "Trojan Source"; tag
// characters). The two selectors that choose between the text and picture forms of an emoji are no harm.
const UNPRINTABLE = /(?![\ufe0e\ufe0f])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;

function escapeCodeUnits(text: string): string {
  // One escape per UTF-16 code unit, so that what stands in a JSON string stays one.
  return text.replace(/[^]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** Replaces each control or hidden character by its escape, such as `\u001b`; lone surrogates become U+FFFD. */
export function escapeControls(text: string): string {
  return text.replace(/\p{Surrogate}/gu, '\ufffd').replace(UNPRINTABLE, escapeCodeUnits);
}
