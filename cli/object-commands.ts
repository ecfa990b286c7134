// The commands that vaults, credentials and environments have alike: show, archive, delete.
import type { Command, CommandFlag, Invocation } from './command.ts';
import { printObject } from './output.ts';

export interface ObjectKind {
  /** First word of the commands, such as `vault`. */
  readonly kind: string;
  /** How a person names one. */
  readonly usage: string;
  /** The same in an example. */
  readonly sample: string;
  readonly flags: Readonly<Record<string, CommandFlag>>;
  readonly summaries: { readonly show: string; readonly archive: string; readonly delete: string };
  /** Path of the object that the arguments name. */
  pathOf(invocation: Invocation): Promise<string>;
}

/** The three commands of a kind. */
export function createObjectCommands(object: ObjectKind): readonly Command[] {
  const create = (
    word: keyof ObjectKind['summaries'],
    call: (path: string) => readonly [method: string, path: string],
  ): Command => ({
    name: `${object.kind} ${word}`,
    summary: object.summaries[word],
    usage: object.usage,
    examples: [`keyveil ${object.kind} ${word} ${object.sample}`],
    flags: object.flags,
    positionals: { min: 1, max: 1 },
    async run(invocation) {
      const [method, path] = call(await object.pathOf(invocation));
      await printObject(
        invocation,
        await invocation.client().call(method, path, method === 'POST' ? { body: {} } : {}),
      );
      return 0;
    },
  });
  return [
    create('show', (path) => ['GET', path]),
    create('archive', (path) => ['POST', `${path}/archive`]),
    create('delete', (path) => ['DELETE', path]),
  ];
}
