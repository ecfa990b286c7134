// What the control plane should answer: the rules of vaults and credentials over plain maps.

interface Entry {
  readonly id: string;
  archived: boolean;
}

export interface ModelVault extends Entry {
  name: string;
  metadata: Map<string, string>;
  readonly credentials: ModelCredential[];
}

export interface ModelCredential extends Entry {
  readonly name: string;
  version: number;
  header: boolean;
  body: boolean;
  hosts: readonly string[] | null;
}

/** Newest last, as they were made. */
export interface ControlModel {
  readonly vaults: ModelVault[];
}

const ACTIVE_CREDENTIALS_MAX = 20;

export function createControlModel(): ControlModel {
  return { vaults: [] };
}

export function activeCredentials(vault: ModelVault): ModelCredential[] {
  return vault.credentials.filter((credential) => !credential.archived);
}

/** The status and code that creating a credential should have; 200 without a code when it is made. */
export function judgeNewCredential(vault: ModelVault, name: string): readonly [status: number, code?: string] {
  if (vault.archived) return [400, 'archived'];
  const active = activeCredentials(vault);
  if (active.some((credential) => credential.name === name)) return [409, 'secret_name_taken'];
  return active.length >= ACTIVE_CREDENTIALS_MAX ? [400, 'vault_full'] : [200];
}

/** What a list should hold, newest first. */
export function listed<Item extends Entry>(items: readonly Item[], includeArchived: boolean): string[] {
  return items
    .filter((item) => includeArchived || !item.archived)
    .map((item) => item.id)
    .reverse();
}
