// Every command, in the order of the help.
import { AUDIT_COMMANDS } from './audit.ts';
import { CA_COMMANDS } from './ca.ts';
import type { Command } from './command.ts';
import { CREDENTIAL_COMMANDS } from './credential.ts';
import { DOCTOR_COMMANDS } from './doctor.ts';
import { ENVIRONMENT_COMMANDS } from './environment.ts';
import { MAINTENANCE_COMMANDS } from './maintenance.ts';
import { RUN_COMMANDS } from './run.ts';
import { SERVE_COMMANDS } from './serve.ts';
import { SESSION_COMMANDS } from './session.ts';
import { EMERGENCY_STOP_COMMANDS, TOKEN_COMMANDS } from './tokens.ts';
import { VAULT_COMMANDS } from './vault.ts';

export const COMMANDS: readonly Command[] = [
  ...SERVE_COMMANDS,
  ...RUN_COMMANDS,
  ...VAULT_COMMANDS,
  ...CREDENTIAL_COMMANDS,
  ...ENVIRONMENT_COMMANDS,
  ...SESSION_COMMANDS,
  ...AUDIT_COMMANDS,
  ...CA_COMMANDS,
  ...TOKEN_COMMANDS,
  ...EMERGENCY_STOP_COMMANDS,
  ...DOCTOR_COMMANDS,
  ...MAINTENANCE_COMMANDS,
];
