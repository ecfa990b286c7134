// The targets by name.
import { openAdminTarget } from './admin-bodies.ts';
import { openConnectTarget } from './connect-lines.ts';
import { openHttp2Target } from './http2-frames.ts';
import { openRequestTarget } from './inner-requests.ts';
import { openMigrationTarget } from './migrations.ts';
import type { OpenTarget } from './target.ts';

export const TARGETS: Readonly<Record<string, OpenTarget>> = {
  connect: openConnectTarget,
  requests: openRequestTarget,
  http2: openHttp2Target,
  admin: openAdminTarget,
  migrations: openMigrationTarget,
};
