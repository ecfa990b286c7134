// Rows that were edited outside of Keyveil while it runs: what is bound does not open, what can't be read denies.
import { join } from 'node:path';
import { requestOf, type AdversaryScene, type AttackCase, type AttackClass } from '../../support/adversary.ts';
import { openConnection, type Database } from '../../../store/database.ts';

const UNREADABLE = /^HTTP\/1\.1 502 [^]*"code":"credential_unreadable"/;

type Ids = Pick<AdversaryScene, 'credentialA' | 'credentialB' | 'vaultA' | 'vaultB'> & {
  readonly sessionId: string;
  readonly environmentId: string;
};

/** Runs the edit, then the attack, and puts the rows back. */
async function withEdit(
  scene: AdversaryScene,
  edit: (database: Database, ids: Ids) => void,
  attack: (session: AdversaryScene['sessionA']) => Promise<string>,
): Promise<string> {
  const { keyveil, vaultA } = scene;
  const config = { networking: { type: 'limited', allowed_hosts: ['api.test'] } };
  const { body } = await keyveil.admin('POST', '/v1/environments', { name: 'edited', config });
  const environmentId = body['id'] as string;
  const session = await keyveil.createSession({ vault_ids: [vaultA], environment_id: environmentId });
  const database = openConnection(join(keyveil.directory, 'data/keyveil.db'), { readonly: false });
  const rows = database.prepare('SELECT * FROM credentials').all() as Record<string, unknown>[];
  try {
    database.pragma('foreign_keys = OFF');
    edit(database, { ...scene, sessionId: session.id, environmentId });
    return await attack(session);
  } catch (error) {
    // The schema does not take it.
    return (error as Error).message;
  } finally {
    const columns = Object.keys(rows[0] as object);
    const restore = database.prepare(
      `UPDATE credentials SET ${columns.map((column) => `${column} = @${column}`).join()} WHERE id = @id`,
    );
    for (const row of rows) restore.run(row);
    database.close();
  }
}

/** The sandbox uses its placeholder after the edit. */
function edited(name: string, sql: string, expected = UNREADABLE): AttackCase {
  return {
    name,
    expected,
    attack: (scene) =>
      withEdit(
        scene,
        (database, ids) => database.prepare(sql).run(ids),
        (session) => scene.inside(requestOf('GET /', [`X-Key: ${scene.placeholderA}`]), { session }),
      ),
  };
}

/** The sandbox asks for a tunnel after the edit. */
function editedPolicy(name: string, sql: string, expected: RegExp): AttackCase {
  return {
    name,
    expected,
    attack: (scene) =>
      withEdit(
        scene,
        (database, ids) => database.prepare(sql).run(ids),
        ({ authorization }) =>
          scene.proxy(
            `CONNECT api.test:443 HTTP/1.1\r\nHost: api.test\r\nProxy-Authorization: ${authorization}\r\n\r\n`,
          ),
      ),
  };
}

const ofA = 'UPDATE credentials SET';
const DENIED = /^HTTP\/1\.1 403 [^]*"code":"environment_denied"/;
const other = (column: string): string => `(SELECT ${column} FROM credentials WHERE id = @credentialB)`;

export const STORE: AttackClass = {
  name: 'store',
  cases: [
    edited("another row's sealed value", `${ofA} sealed_value = ${other('sealed_value')} WHERE id = @credentialA`),
    edited(
      "another row's sealed value and version",
      `${ofA} sealed_value = ${other('sealed_value')}, secret_version = ${other('secret_version')} WHERE id = @credentialA`,
    ),
    edited(
      'a sealed value that is cut',
      `${ofA} sealed_value = substr(sealed_value, 1, length(sealed_value) - 1) WHERE id = @credentialA`,
    ),
    edited('a sealed value of one byte', `${ofA} sealed_value = x'01' WHERE id = @credentialA`),
    edited('an empty sealed value', `${ofA} sealed_value = x'' WHERE id = @credentialA`),
    edited(
      'a sealed value of another format',
      `${ofA} sealed_value = CAST(x'02' || substr(sealed_value, 2) AS BLOB) WHERE id = @credentialA`,
    ),
    edited(
      'a sealed value that is text',
      `${ofA} sealed_value = 'a value in clear' WHERE id = @credentialA`,
      /^cannot store TEXT value in BLOB column/,
    ),
    edited('a key that nobody gave', `${ofA} sealing_key = 'ffffffffffffffff' WHERE id = @credentialA`),
    edited('another version', `${ofA} secret_version = secret_version + 1 WHERE id = @credentialA`),
    edited('another name', `${ofA} secret_name = 'OTHER' WHERE id = @credentialA`),
    edited(
      'more hosts',
      `${ofA} networking = '{"type":"limited","allowed_hosts":["api.test","evil.test"]}' WHERE id = @credentialA`,
    ),
    edited('every host', `${ofA} networking = '{"type":"unrestricted"}' WHERE id = @credentialA`),
    edited('networking that is none', `${ofA} networking = '{"type":' WHERE id = @credentialA`),
    edited('networking of an unknown type', `${ofA} networking = '{"type":"everything"}' WHERE id = @credentialA`),
    edited('a location that is on now', `${ofA} inject_header = 1, inject_body = 0 WHERE id = @credentialA`),
    {
      name: 'a credential that was moved to another vault',
      expected: UNREADABLE,
      attack: (scene) =>
        withEdit(
          scene,
          (database, ids) => {
            database.prepare(`${ofA} secret_name = 'MOVED', vault_id = @vaultA WHERE id = @credentialB`).run(ids);
          },
          (session) => scene.inside(requestOf('GET /', [`X-Key: ${scene.placeholderB}`]), { session }),
        ),
    },
    {
      name: "another credential's placeholder",
      expected: /^UNIQUE constraint failed: credentials\.placeholder/,
      attack: (scene) =>
        withEdit(
          scene,
          (database, ids) => {
            database.prepare(`${ofA} placeholder = ${other('placeholder')} WHERE id = @credentialA`).run(ids);
          },
          (session) => scene.inside(requestOf('GET /', [`X-Key: ${scene.placeholderB}`]), { session }),
        ),
    },
    editedPolicy(
      'an environment that is no JSON',
      `UPDATE environments SET networking = '{' WHERE id = @environmentId`,
      DENIED,
    ),
    editedPolicy(
      'an environment of an unknown type',
      `UPDATE environments SET networking = '{"type":"all"}' WHERE id = @environmentId`,
      DENIED,
    ),
    editedPolicy(
      'an environment whose hosts are no list',
      `UPDATE environments SET networking = '{"type":"limited","allowed_hosts":"api.test"}' WHERE id = @environmentId`,
      DENIED,
    ),
    editedPolicy(
      'private ranges that are none',
      `UPDATE environments SET allowed_private_cidrs = '["0.0.0.0/99"]' WHERE id = @environmentId`,
      DENIED,
    ),
    editedPolicy('an environment that is gone', 'DELETE FROM environments WHERE id = @environmentId', DENIED),
    editedPolicy(
      'a list of vaults that is none',
      `UPDATE sessions SET vault_ids = '[' WHERE id = @sessionId`,
      /^HTTP\/1\.1 503 [^]*"code":"store_unavailable"/,
    ),
    editedPolicy(
      'a session without a token',
      `UPDATE sessions SET token_hash = x'' WHERE id = @sessionId`,
      /^CHECK constraint failed/,
    ),
    editedPolicy(
      'a session that is gone',
      'DELETE FROM sessions WHERE id = @sessionId',
      /^HTTP\/1\.1 407 [^]*"code":"proxy_authentication_required"/,
    ),
    editedPolicy(
      'a session that has ended',
      'UPDATE sessions SET expires_at = 1 WHERE id = @sessionId',
      /^HTTP\/1\.1 407 [^]*"code":"session_inactive"/,
    ),
  ],
};
