// The texts of --help, on every level.
import type { Command, CommandFlag } from './command.ts';

function columns(rows: readonly (readonly [string, string])[]): string {
  const width = Math.max(...rows.map(([left]) => left.length));
  return rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`).join('\n');
}

/** Help of one command. */
export function helpOfCommand(command: Command): string {
  const flags: Readonly<Record<string, CommandFlag>> = {
    ...command.flags,
    help: { type: 'boolean', help: 'show this help' },
  };
  const rows = Object.entries(flags).map(([name, flag]): [string, string] => {
    const value = flag.type === 'string' ? ` ${flag.value ?? 'VALUE'}` : '';
    return [`--${name}${value}${flag.multiple === true ? ' …' : ''}`, flag.help];
  });
  const examples = command.examples.map((line) => `  ${line}`).join('\n');
  const note = command.note === undefined ? '' : `${command.note}\n\n`;
  return `${command.summary}\n\nUsage: ${`keyveil ${command.name} ${command.usage}`.trim()}\n\nFlags:\n${columns(rows)}\n\n${note}Example:\n${examples}\n`;
}

/** Help of a group such as `vault`. */
export function helpOfGroup(group: string, commands: readonly Command[]): string {
  const rows = commands.map((command): [string, string] => [
    `${command.name} ${command.usage}`.trim(),
    command.summary,
  ]);
  return `Usage: keyveil ${group} COMMAND\n\n${columns(rows)}\n\nExample:\n  ${commands[0]?.examples[0] ?? ''}\n`;
}

/** Help of the whole. */
export function helpOfAll(commands: readonly Command[]): string {
  const rows = commands.map((command): [string, string] => [command.name, command.summary]);
  return [
    'Keyveil gives sandboxed programs placeholders for secrets, and swaps them for the real values on the way out.',
    '',
    'Usage: keyveil COMMAND [--help]',
    '',
    columns(rows),
    '',
    'Example:',
    '  keyveil serve --data-dir ./data',
    '  keyveil vault create work',
    '  printf %s "$NOTION_KEY" | keyveil credential create NOTION_API_KEY --vault work --host api.notion.com',
    '  keyveil run --vault work -- sh -c \'echo "$NOTION_API_KEY"\'',
    '',
  ].join('\n');
}
