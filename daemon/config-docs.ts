// The page docs/configuration.md, made from the table of settings, so that it can't tell anything else than the code.
import { SETTINGS } from './config-schema.ts';
import { flagOf, type Setting } from './config-setting.ts';

const INTRODUCTION = `# Configuration

<!-- Made by \`node --import ./scripts/ts-register.mjs scripts/generate-configuration.mjs\` from daemon/config-schema*.ts. Do not edit. -->

Every setting is an environment variable and a flag of \`keyveil serve\`: \`KEYVEIL_PROXY_LISTEN\` is \`--proxy-listen\`. A flag
goes before the environment, the environment before the default. A value that is not valid stops the start with one line
that names the variable, what is wrong and an example; so does a \`KEYVEIL_*\` variable that is not on this page (those
that Kubernetes makes for a service named \`keyveil\` excepted).

A secret is given as the variable, or in a file that the same variable with \`_FILE\` names; the file goes first. It has no
flag but the one for the file, since arguments can be read by every user of a machine.

Sizes are bytes, or numbers with \`KiB\`, \`MiB\`, \`GiB\` or \`TiB\`. Lists are separated by commas.

The start is refused under \`NODE_TLS_REJECT_UNAUTHORIZED=0\`, \`SSLKEYLOGFILE\`, \`NODE_DEBUG\` and \`NODE_DEBUG_NATIVE\`, and
with these options of Node.js, in \`NODE_OPTIONS\` too: \`--tls-keylog\`, \`--trace-tls\`, \`--insecure-http-parser\`,
\`--inspect\` (\`-brk\`, \`-wait\`), \`--report-on-fatalerror\`, \`--report-on-signal\`, \`--report-uncaught-exception\`,
\`--heapsnapshot-signal\`, \`--heapsnapshot-near-heap-limit\`. Each of them would undo a guarantee.

\`keyveil serve\` takes its secrets out of its environment once it has read them: no program that it starts has them. What
the system shows of the start itself (\`/proc/PID/environ\`, to the same user) keeps them; a file does not have that.
`;

function defaultOf(setting: Setting<unknown>): string {
  if (setting.fallback === null) return 'not set';
  return setting.fallback === '' ? 'empty' : `\`${setting.fallback}\``;
}

function formatSetting(setting: Setting<unknown>): string {
  const names = setting.isSecret
    ? `\`${setting.variable}_FILE\` (\`${flagOf(`${setting.variable}_FILE`)}\`), else \`${setting.variable}\``
    : `\`${flagOf(setting.variable)}\``;
  const example = /[$ ]/.test(setting.example) ? `"${setting.example}"` : setting.example;
  return [
    `### ${setting.variable}`,
    '',
    setting.description,
    '',
    `- ${setting.isSecret ? 'From' : 'Flag'}: ${names}`,
    `- Default: ${defaultOf(setting)}`,
    `- Example: \`${setting.variable}=${example}\``,
    '',
  ].join('\n');
}

/** The whole page, Markdown. */
export function formatConfigurationPage(): string {
  const settings: Setting<unknown>[] = Object.values(SETTINGS);
  const groups = [...new Set(settings.map((setting) => setting.group))];
  const sections = groups.map((group) => {
    const members = settings.filter((setting) => setting.group === group);
    return `## ${group}\n\n${members.map(formatSetting).join('\n')}`;
  });
  return `${INTRODUCTION}\n${sections.join('\n')}`;
}
