// Logins that are wrong, stale, another's, or in the wrong place.
import { basicLogin } from '../../support/daemon.ts';
import { requestOf, VALUE_B, type AdversaryScene, type AttackCase, type AttackClass } from '../../support/adversary.ts';

const REFUSED =
  /^HTTP\/1\.1 407 [^]*proxy-authenticate: Basic realm="keyveil"[^]*"code":"proxy_authentication_required"/i;
const INACTIVE = /^HTTP\/1\.1 407 [^]*"code":"session_inactive"/;
const BAD = /^HTTP\/1\.1 400 [^]*"code":"bad_request"/;

function connect(scene: AdversaryScene, ...fields: string[]): Promise<string> {
  return scene.proxy(['CONNECT api.test:443 HTTP/1.1', 'Host: api.test:443', ...fields, '', ''].join('\r\n'));
}

function login(name: string, authorization: (scene: AdversaryScene) => string, expected = REFUSED): AttackCase {
  return { name, expected, attack: (scene) => connect(scene, `Proxy-Authorization: ${authorization(scene)}`) };
}

/** A session that something has happened to; its login is tried afterwards. */
function afterwards(
  name: string,
  change: (scene: AdversaryScene, id: string) => Promise<unknown>,
  expected = INACTIVE,
): AttackCase {
  return {
    name,
    expected,
    async attack(scene) {
      const session = await scene.keyveil.createSession({ vault_ids: [] });
      await change(scene, session.id);
      return connect(scene, `Proxy-Authorization: ${session.authorization}`);
    },
  };
}

const swapCase = (text: string): string =>
  [...text].map((each) => (each === each.toLowerCase() ? each.toUpperCase() : each.toLowerCase())).join('');

export const IDENTITY: AttackClass = {
  name: 'identity',
  cases: [
    { name: 'no login', expected: REFUSED, attack: (scene) => connect(scene) },
    login('an empty login', () => 'Basic '),
    login('a scheme alone', () => 'Basic'),
    login('a login without a colon', ({ tokenA }) => `Basic ${Buffer.from(tokenA).toString('base64')}`),
    login('base64 that is none', () => 'Basic %%%%'),
    login('the right session with no token', ({ sessionA }) => basicLogin(sessionA.id, '')),
    login('the right session with a wrong token', ({ sessionA }) => basicLogin(sessionA.id, 'x'.repeat(43))),
    login("another session's token", ({ sessionA, tokenB }) => basicLogin(sessionA.id, tokenB)),
    login("the token under another session's id", ({ sessionB, tokenA }) => basicLogin(sessionB.id, tokenA)),
    login('the token in the other case', ({ sessionA, tokenA }) => basicLogin(sessionA.id, swapCase(tokenA))),
    login('the id in the other case', ({ sessionA, tokenA }) => basicLogin(sessionA.id.toUpperCase(), tokenA)),
    login('a token with its last character missing', ({ sessionA, tokenA }) =>
      basicLogin(sessionA.id, tokenA.slice(0, -1)),
    ),
    login('a token with one more character', ({ sessionA, tokenA }) => basicLogin(sessionA.id, `${tokenA}A`)),
    login('a token with a NUL behind it', ({ sessionA, tokenA }) => basicLogin(sessionA.id, `${tokenA}\0`)),
    login('user and password exchanged', ({ sessionA, tokenA }) => basicLogin(tokenA, sessionA.id)),
    login('a wrong bearer token', () => `Bearer ${'x'.repeat(43)}`),
    login('the hash of the token as the token', ({ sessionA }) => basicLogin(sessionA.id, '0'.repeat(64))),
    login('an id with SQL in it', ({ tokenA }) => basicLogin("x' OR '1'='1", tokenA)),
    login('the Digest scheme', ({ sessionA, tokenA }) => `Digest username="${sessionA.id}", response="${tokenA}"`),
    login('an admin token', () => basicLogin('admin', 'kvad_'.padEnd(48, 'x'))),
    {
      name: 'the login in Authorization',
      expected: REFUSED,
      attack: (scene) => connect(scene, `Authorization: ${scene.sessionA.authorization}`),
    },
    {
      name: 'the login in a field of nearly that name',
      expected: REFUSED,
      attack: (scene) => connect(scene, `Proxy_Authorization: ${scene.sessionA.authorization}`),
    },
    {
      name: 'the login in the target',
      expected: BAD,
      attack: ({ proxy, sessionA, tokenA }) =>
        proxy(`CONNECT ${sessionA.id}:${tokenA}@api.test:443 HTTP/1.1\r\nHost: api.test\r\n\r\n`),
    },
    {
      name: 'two logins, of two sessions',
      expected: BAD,
      attack: (scene) =>
        connect(
          scene,
          `Proxy-Authorization: ${scene.sessionA.authorization}`,
          `Proxy-Authorization: ${scene.sessionB.authorization}`,
        ),
    },
    {
      name: 'two logins, the first of them wrong',
      expected: BAD,
      attack: (scene) =>
        connect(scene, 'Proxy-Authorization: Basic eDp5', `Proxy-Authorization: ${scene.sessionA.authorization}`),
    },
    {
      name: 'a login on a folded line',
      expected: BAD,
      attack: (scene) => connect(scene, `Proxy-Authorization: Basic\r\n ${scene.sessionA.authorization.slice(6)}`),
    },
    {
      name: 'a login of 60 KB',
      expected: /^HTTP\/1\.1 407 [^]*"code":"proxy_authentication_required"/,
      attack: (scene) => connect(scene, `Proxy-Authorization: ${basicLogin('x'.repeat(45_000), 'y')}`),
    },
    {
      name: 'a wrong login with an absolute URL',
      expected: REFUSED,
      attack: ({ proxy, sessionA, tokenB }) =>
        proxy(
          `GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\nProxy-Authorization: ${basicLogin(sessionA.id, tokenB)}\r\n\r\n`,
        ),
    },
    {
      name: "another session's login inside the tunnel",
      expected: /^HTTP\/1\.1 200 /,
      arrives: 1,
      attack: (scene) =>
        scene.inside(
          requestOf('GET /', [`Proxy-Authorization: ${scene.sessionB.authorization}`, `X-Key: ${scene.placeholderB}`]),
        ),
      check(t, [request]) {
        t.equal(request?.header('proxy-authorization'), undefined, 'it does not go on');
        t.not(request?.header('x-key'), VALUE_B, 'and changes nothing');
      },
    },
    afterwards('an archived session', ({ keyveil }, id) => keyveil.admin('POST', `/v1/sessions/${id}/archive`)),
    afterwards(
      'a token that was renewed',
      ({ keyveil }, id) => keyveil.admin('POST', `/v1/sessions/${id}/rotate_token`),
      REFUSED,
    ),
    afterwards('an expired session', async ({ keyveil }, id) => {
      await keyveil.admin('POST', `/v1/sessions/${id}`, { expires_in: 1 });
      await new Promise((resolve) => setTimeout(resolve, 1500));
    }),
  ],
};
