// Scoped tokens of the admin API.

/** `admin` may do all, `broker` creates, reads and archives sessions, `auditor` reads. */
export type AdminScope = 'admin' | 'broker' | 'auditor';

export interface AdminToken {
  readonly id: string;
  readonly name: string;
  readonly scope: AdminScope;
  readonly createdAt: number;
  readonly lastUsedAt: number | null;
  readonly expiresAt: number | null;
}

export interface NewAdminToken {
  readonly name: string;
  readonly scope: AdminScope;
  readonly expiresAt: number | null;
}
