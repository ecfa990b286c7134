// Ways to have a value sent, shown or placed where it does not belong.
import { basicLogin } from '../../support/daemon.ts';
import {
  requestOf,
  VALUE_A,
  VALUE_B,
  type AdversaryScene,
  type AttackCase,
  type AttackClass,
} from '../../support/adversary.ts';

const OK = /^HTTP\/1\.1 200 /;
const missed = (reason: string): RegExp => new RegExp(`^HTTP/1\\.1 200 [^]*KEY not swapped: ${reason}`);

interface Sent {
  readonly line?: string;
  readonly fields?: readonly string[];
  readonly body?: string;
}

/** A request in which no value may be put; it arrives as it was sent. */
function literal(name: string, request: (scene: AdversaryScene) => Sent, expected = OK): AttackCase {
  return {
    name,
    expected,
    arrives: 1,
    attack: (scene) => {
      const { line = 'GET /', fields, body } = request(scene);
      return scene.inside(requestOf(line, fields, body));
    },
    check(t, [request]) {
      const all = `${request?.url ?? ''} ${request?.rawHeaders.join(' ') ?? ''} ${request?.body.toString() ?? ''}`;
      for (const value of [VALUE_A, VALUE_B]) t.notOk(all.includes(value), 'no value arrives');
    },
  };
}

/** A request that gets the value at this place alone. */
function swapped(
  name: string,
  request: (scene: AdversaryScene) => Sent,
  [field, becomes]: readonly [string, string],
): AttackCase {
  return {
    name,
    expected: OK,
    arrives: 1,
    attack: (scene) => {
      const { line = 'GET /', fields, body } = request(scene);
      return scene.inside(requestOf(line, fields, body));
    },
    check: (t, [received]) => t.equal(received?.header(field), becomes),
  };
}

/** A credential of this session's own vault, for what the usual one does not allow. */
function withCredential(
  name: string,
  auth: Record<string, unknown>,
  attack: { host?: string; line?: string; body?: boolean; expected: RegExp; isSwapped: boolean },
): AttackCase {
  const value = 'value-of-a-credential-made-for-this';
  return {
    name,
    expected: attack.expected,
    arrives: 1,
    async attack({ keyveil, inside }) {
      const vault = await keyveil.createVault();
      const { placeholder } = await keyveil.createCredential(vault, {
        secret_name: 'KEY',
        secret_value: value,
        ...auth,
      });
      const session = await keyveil.createSession({ vault_ids: [vault] });
      const host = attack.host ?? 'api.test';
      const [fields, body] = attack.body === true ? ['', placeholder] : [`X-Key: ${placeholder}\r\n`, ''];
      const length = body === '' ? '' : `Content-Length: ${String(body.length)}\r\n`;
      return inside(`POST / HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n${fields}${length}\r\n${body}`, {
        session,
        host,
      });
    },
    check(t, [received]) {
      const all = `${received?.rawHeaders.join(' ') ?? ''} ${received?.body.toString() ?? ''}`;
      t.equal(all.includes(value), attack.isSwapped);
    },
  };
}

const limited = (...allowed_hosts: string[]): Record<string, unknown> => ({
  networking: { type: 'limited', allowed_hosts },
});

/** Values and hosts that must not be stored, since they would be put into requests. */
function notStored(name: string, auth: Record<string, unknown>, expected: RegExp): AttackCase {
  return {
    name,
    expected,
    async attack({ keyveil, vaultA }) {
      const body = {
        auth: {
          type: 'environment_variable',
          secret_name: 'STORED',
          secret_value: 'a value of some length',
          ...limited('api.test'),
          ...auth,
        },
      };
      const answer = await keyveil.admin('POST', `/v1/vaults/${vaultA}/credentials`, body);
      return `${String(answer.status)} ${JSON.stringify(answer.body)}`;
    },
  };
}

const NOT_SAFE = /^400 .*"secret_value_not_header_safe"/;

export const SWAP: AttackClass = {
  name: 'swap and veil',
  cases: [
    literal("another session's placeholder in a field", ({ placeholderB }) => ({ fields: [`X-Key: ${placeholderB}`] })),
    literal("another session's placeholder in a body", ({ placeholderB }) => ({ line: 'POST /', body: placeholderB })),
    literal('in the path', ({ placeholderA }) => ({ line: `GET /${placeholderA}` }), missed('in_url')),
    literal('in the query', ({ placeholderA }) => ({ line: `GET /?key=${placeholderA}` }), missed('in_url')),
    literal('in the name of a field', ({ placeholderA }) => ({ fields: [`${placeholderA}: x`] })),
    literal('split between two fields', ({ placeholderA }) => ({
      fields: [`X-Key: ${placeholderA.slice(0, 20)}`, `X-Key: ${placeholderA.slice(20)}`],
    })),
    literal('split between a field and the body', ({ placeholderA }) => ({
      line: 'POST /',
      fields: [`X-Key: ${placeholderA.slice(0, 20)}`],
      body: placeholderA.slice(20),
    })),
    literal('in the other case', ({ placeholderA }) => ({ fields: [`X-Key: ${placeholderA.toUpperCase()}`] })),
    literal('with a character missing', ({ placeholderA }) => ({ fields: [`X-Key: ${placeholderA.slice(0, -1)}`] })),
    literal('percent-encoded', ({ placeholderA }) => ({ fields: [`X-Key: ${placeholderA.replace('_', '%5F')}`] })),
    literal('in base64 outside of Basic', ({ placeholderA }) => ({
      fields: [`X-Key: ${Buffer.from(placeholderA).toString('base64')}`],
    })),
    literal('nested in itself', ({ placeholderA }) => ({
      fields: [`X-Key: ${placeholderA.slice(0, 10)}${placeholderA.slice(0, 20)}${placeholderA.slice(10, 30)}`],
    })),
    literal('in a field that Connection names', ({ placeholderA }) => ({
      fields: [`Connection: X-Key`, `X-Key: ${placeholderA}`],
    })),
    literal(
      'in a protobuf body',
      ({ placeholderA }) => ({ line: 'POST /', fields: ['Content-Type: application/x-protobuf'], body: placeholderA }),
      OK,
    ),
    literal(
      'in a body of an unknown coding',
      ({ placeholderA }) => ({ line: 'POST /', fields: ['Content-Encoding: compress'], body: placeholderA }),
      OK,
    ),
    literal('in a body that claims to be gzip', ({ placeholderA }) => ({
      line: 'POST /',
      fields: ['Content-Encoding: gzip'],
      body: placeholderA,
    })),
    {
      name: 'in the method',
      expected: /^HTTP\/1\.1 400 /,
      attack: (scene) => scene.inside(requestOf(`${scene.placeholderA} /`)),
    },
    {
      name: 'in Host',
      expected: /^HTTP\/1\.1 421 [^]*"code":"host_mismatch"/,
      attack: (scene) => scene.inside(`GET / HTTP/1.1\r\nHost: ${scene.placeholderA}\r\nConnection: close\r\n\r\n`),
    },
    {
      name: 'in Content-Length',
      expected: /^HTTP\/1\.1 400 /,
      attack: (scene) => scene.inside(requestOf('POST /', [`Content-Length: ${scene.placeholderA}`])),
    },
    {
      name: 'in Transfer-Encoding',
      expected: /^HTTP\/1\.1 400 /,
      attack: (scene) => scene.inside(requestOf('POST /', [`Transfer-Encoding: ${scene.placeholderA}`])),
    },
    {
      name: 'as the host of a CONNECT',
      expected: /^HTTP\/1\.1 502 (?![^]*value-of)[^]*"code":"upstream_connect_failed"/,
      attack: (scene) => scene.connectTo(`${scene.placeholderA}.test:443`),
    },
    swapped('in a cookie', ({ placeholderA }) => ({ fields: [`Cookie: a=${placeholderA}; b=2`] }), [
      'cookie',
      `a=${VALUE_A}; b=2`,
    ]),
    swapped('twice in one field', ({ placeholderA }) => ({ fields: [`X-Key: ${placeholderA}${placeholderA}`] }), [
      'x-key',
      VALUE_A + VALUE_A,
    ]),
    swapped(
      'beside another session’s',
      ({ placeholderA, placeholderB }) => ({ fields: [`X-Key: ${placeholderB}`, `X-Own: ${placeholderA}`] }),
      ['x-own', VALUE_A],
    ),
    swapped(
      'as the user of Basic',
      ({ placeholderA }) => ({ fields: [`Authorization: ${basicLogin(placeholderA, '')}`] }),
      ['authorization', basicLogin(VALUE_A, '')],
    ),
    withCredential('a wildcard does not cover its own name', limited('*.api.test'), {
      expected: missed('host_not_covered'),
      isSwapped: false,
    }),
    withCredential('a name does not cover what is below it', limited('api.test'), {
      host: 'sub.api.test',
      expected: missed('host_not_covered'),
      isSwapped: false,
    }),
    withCredential('a name does not cover a longer one', limited('api.test'), {
      host: 'api.test.evil.test',
      expected: missed('host_not_covered'),
      isSwapped: false,
    }),
    withCredential('a name in capitals with a dot is the same name', limited('API.Test.'), {
      expected: OK,
      isSwapped: true,
    }),
    withCredential(
      'a header-only credential in a body',
      { ...limited('api.test'), injection_location: { header: true } },
      { body: true, expected: OK, isSwapped: false },
    ),
    withCredential(
      'a body-only credential in a field',
      { ...limited('api.test'), injection_location: { body: true } },
      { expected: missed('location_disabled'), isSwapped: false },
    ),
    withCredential(
      'a value that is a placeholder is not swapped again',
      { ...limited('api.test'), secret_value: 'kvph_00000000000000000000000000000000' },
      { expected: OK, isSwapped: false },
    ),
    notStored('a value that splits the request', { secret_value: 'x\r\nX-Injected: 1' }, NOT_SAFE),
    notStored('a value with a bare line feed', { secret_value: 'a value\nX-Injected: 1' }, NOT_SAFE),
    notStored('a value with an escape', { secret_value: 'a value\x1b[2J' }, NOT_SAFE),
    notStored('a value with a delete', { secret_value: 'a value\x7f' }, NOT_SAFE),
    notStored('every host by a wildcard', limited('*'), /^400 /),
    notStored('every host of a registry', limited('*.co.uk'), /^400 .*"host_too_broad"/),
    notStored('a host with a port', limited('api.test:443'), /^400 /),
    notStored('a wildcard in the middle', limited('api.*.test'), /^400 /),
    notStored('a wildcard over addresses', limited('*.0.0.1'), /^400 /),
    {
      name: 'an echo of the field',
      expected: /^HTTP\/1\.1 200 [^]*kvph_/,
      arrives: 1,
      attack: (scene) => scene.inside(requestOf('GET /echo', [`X-Key: ${scene.placeholderA}`])),
      check: (t, [request]) => t.equal(request?.header('x-key'), VALUE_A),
    },
    {
      name: 'an echo of the body, of many values',
      expected: /^HTTP\/1\.1 200 [^]*kvph_/,
      arrives: 1,
      attack: (scene) => scene.inside(requestOf('POST /echo', [], `${scene.placeholderA}\n`.repeat(5000))),
    },
    {
      name: 'an echo through a host that is not covered has nothing to show',
      expected: /^HTTP\/1\.1 200 [^]*kvph_/,
      arrives: 1,
      attack: (scene) =>
        scene.inside(
          `GET /echo HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\nX-Key: ${scene.placeholderA}\r\n\r\n`,
          { host: 'other.test' },
        ),
      check: (t, [request]) => t.not(request?.header('x-key'), VALUE_A),
    },
    {
      name: "another session's own echo",
      expected: /^HTTP\/1\.1 200 [^]*kvph_/,
      arrives: 1,
      attack: (scene) =>
        scene.inside(requestOf('GET /echo', [`X-Key: ${scene.placeholderB}`]), { session: scene.sessionB }),
      check: (t, [request]) => t.equal(request?.header('x-key'), VALUE_B),
    },
  ],
};
