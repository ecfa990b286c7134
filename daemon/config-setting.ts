// What one setting is made of: a variable, a zod schema from text to a domain type, a default, words and an example.
import { z } from 'zod';
import { ValueFault } from './config-parse.ts';

/** What one setting is, for the loader and for docs/configuration.md. */
export interface Setting<Value> {
  readonly variable: string;
  /** From text to the domain type. */
  readonly schema: z.ZodType<Value, string>;
  /** Text that applies when nothing was set; null when the setting is then absent (its value is null). */
  readonly fallback: string | null;
  readonly group:
    'Basics' | 'Admin API' | 'Proxy' | 'Destinations' | 'Swap and veil' | 'Audit and limits' | 'Command line';
  readonly description: string;
  readonly example: string;
  /** A secret may come from the variable or from the file that `…_FILE` names, and never from a flag's value. */
  readonly isSecret: boolean;
}

type Text<Value, Fallback> = Omit<Setting<Value>, 'schema' | 'isSecret' | 'fallback'> & { readonly fallback: Fallback };

function schemaOf<Value>(parseText: (text: string) => Value): z.ZodType<Value, string> {
  return z.string().transform((text, context): Value => {
    try {
      return parseText(text);
    } catch (error) {
      if (!(error instanceof ValueFault)) throw error;
      context.addIssue({ code: 'custom', message: error.message });
      return z.NEVER;
    }
  });
}

/** A setting with a default. */
export function setting<Value>(parseText: (text: string) => Value, text: Text<Value, string>): Setting<Value> {
  return { ...text, schema: schemaOf(parseText), isSecret: false };
}

/** A setting whose value is null when it is not set. */
export function optional<Value>(
  parseText: (text: string) => Value,
  text: Omit<Text<Value, null>, 'fallback'>,
): Setting<Value | null> {
  return { ...text, schema: schemaOf(parseText), fallback: null, isSecret: false };
}

/** A secret: its value is null when neither the variable nor its file is set. */
export function secret<Value>(
  parseText: (text: string) => Value,
  text: Omit<Text<Value, null>, 'fallback'>,
): Setting<Value | null> {
  return { ...text, schema: schemaOf(parseText), fallback: null, isSecret: true };
}

/** The flag that stands for a variable: `KEYVEIL_PROXY_LISTEN` is `--proxy-listen`. */
export function flagOf(variable: string): string {
  return `--${variable.slice('KEYVEIL_'.length).toLowerCase().replaceAll('_', '-')}`;
}
