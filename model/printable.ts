// Makes text that a sandbox, an upstream or a file chose safe to print: no byte of it reaches a terminal as a command.

// C0 and C1 controls (terminal escapes), and the characters that reorder or hide text (Unicode TR 36, "Trojan Source").
const UNPRINTABLE =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** Replaces each control or hidden character by its escape, such as `\u001b`; lone surrogates become U+FFFD. */
export function escapeControls(text: string): string {
  return text
    .replace(/\p{Surrogate}/gu, '\ufffd')
    .replace(UNPRINTABLE, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
