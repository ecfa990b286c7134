#!/usr/bin/env node
// The command `keyveil`: hands the process's arguments, streams and environment to the command line.
import { processEnvironment } from '../daemon/config.ts';
import { VERSION } from '../daemon/version.ts';
import { runCommandLine } from './command-line.ts';
import type { Terminal } from './command.ts';

const EXIT_BROKEN_PIPE = 141;

// `keyveil audit --follow | head` ends the reader first: that is no error worth a stack.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(EXIT_BROKEN_PIPE);
  throw error;
});

const terminal: Terminal = {
  stdin: process.stdin,
  out: (text) =>
    new Promise((resolve, reject) => process.stdout.write(text, (error) => (error ? reject(error) : resolve()))),
  err: (text) => void process.stderr.write(text),
  columns: process.stdout.isTTY ? process.stdout.columns : null,
};

const exitCode = await runCommandLine(process.argv.slice(2), {
  terminal,
  env: processEnvironment(),
  cwd: process.cwd(),
  version: VERSION,
});
// Not left to an empty event loop: a terminal's standard input or a keep-alive socket would hold the process.
process.exit(exitCode);
