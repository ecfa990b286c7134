// Fuzzes what the proxy port reads before a session is known: CONNECT lines and plain requests, whole and in pieces.
import { connect } from 'node:net';
import { HOST, openProxyScene } from './proxy-scene.ts';
import { cutText, mutateText, pick, type FuzzTarget, type Random } from './target.ts';

interface Input {
  /** Latin-1; the login stands as `$LOGIN`. */
  readonly pieces: readonly string[];
}

const TARGETS = [
  `${HOST}:443`,
  `${HOST}:443`,
  `${HOST.toUpperCase()}.:443`,
  `${HOST}:0443`,
  `${HOST}`,
  `${HOST}:`,
  `${HOST}:65536`,
  `:443`,
  '127.0.0.1:443',
  '0x7f.1:443',
  '[::1]:443',
  '[::ffff:127.0.0.1]:443',
  '[fe80::1%25eth0]:443',
  'a@b:443',
  `${HOST}:443/path`,
  `https://${HOST}/`,
  'xn--a.test:443',
  `${'a'.repeat(64)}.test:443`,
  `${'a.'.repeat(200)}test:443`,
];
const FIELDS = [
  'Host: $HOST:443\r\n',
  'Proxy-Authorization: $LOGIN\r\n',
  'Proxy-Connection: keep-alive\r\n',
  'Content-Length: 5\r\n',
  'Transfer-Encoding: chunked\r\n',
  'Expect: 100-continue\r\n',
  'Upgrade: h2c\r\nConnection: Upgrade\r\n',
  `X-Long: ${'x'.repeat(3000)}\r\n`,
];
const TOKENS = ['\r\n', '\n', '\r', '\0', ' ', '\t', ':', '%00', '@', '\r\n\r\n', 'CONNECT ', ' HTTP/1.1', ...FIELDS];
const TAILS = ['', '', '\x16\x03\x01\x00\x05hello', 'GET / HTTP/1.1\r\n\r\n', '\0\0\0\0'];

function makeText(random: Random): string {
  const isPlain = random() < 0.3;
  const target = isPlain ? `http://${pick(TARGETS, random)}/x` : pick(TARGETS, random);
  const method = isPlain ? pick(['GET', 'POST', 'OPTIONS', 'CONNECT', 'PRI'], random) : 'CONNECT';
  const version = pick(['HTTP/1.1', 'HTTP/1.1', 'HTTP/1.1', 'HTTP/1.0', 'HTTP/2.0', 'http/1.1', 'HTTP/1.1 '], random);
  let fields = random() < 0.8 ? 'Host: $HOST:443\r\nProxy-Authorization: $LOGIN\r\n' : '';
  while (random() < 0.3) fields += pick(FIELDS, random);
  return `${method} ${target} ${version}\r\n${fields}\r\n${pick(TAILS, random)}`;
}

export async function openConnectTarget(): Promise<FuzzTarget> {
  const scene = await openProxyScene();
  const { keyveil } = scene;
  return {
    make(random): Input {
      const text = makeText(random);
      return { pieces: cutText(random() < 0.8 ? mutateText(text, TOKENS, random) : text, 4, random) };
    },
    async attempt(input) {
      // Cut before the names are put in, so that a kept input fits every run.
      const pieces = (input as Input).pieces.map((piece) =>
        piece.replaceAll('$LOGIN', keyveil.login).replaceAll('$HOST', HOST),
      );
      const answers = await scene.exchange(connect(keyveil.port, '127.0.0.1'), pieces);
      if (answers !== '' && !/^HTTP\/1\.[01] [1-5]\d\d /.test(answers)) return `answered ${JSON.stringify(answers)}`;
      if (/^HTTP\/1\.1 500 /.test(answers)) return `answered ${answers}`;
      return scene.judge(answers);
    },
    close: () => scene.close(),
  };
}
