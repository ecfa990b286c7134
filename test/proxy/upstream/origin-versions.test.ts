// What is remembered of origins' versions, and for how long.
import { test } from 'tap';
import { HTTP1_REQUIRED_REMEMBERED_MS, ORIGINS_REMEMBERED_MAX } from '../../../model/limits.ts';
import { OriginVersions } from '../../../proxy/upstream/origin-versions.ts';

const origin = (host: string) => ({ authority: { host, port: 443 } });

test('what an origin wanted holds for a time; what a handshake told holds on', (t) => {
  let now = 0;
  const versions = new OriginVersions(() => now);
  const known = ['h2', 'http/1.1', 'h2-only', 'http/1.1-required'] as const;
  for (const version of known) versions.remember(origin(version), version);
  now = HTTP1_REQUIRED_REMEMBERED_MS - 1;
  for (const version of known) t.equal(versions.of(origin(version)), version);
  versions.rememberHttp2(origin('http/1.1-required'));
  t.equal(versions.of(origin('http/1.1-required')), 'http/1.1-required', 'a handshake does not undo it');
  now += 1;
  for (const version of known) {
    t.equal(versions.of(origin(version)), version === 'http/1.1-required' ? undefined : version);
  }
  versions.rememberHttp2(origin('http/1.1-required'));
  t.equal(versions.of(origin('http/1.1-required')), 'h2');
  t.end();
});

test('a doubt takes back what was wanted, and nothing else', (t) => {
  const versions = new OriginVersions(() => 0);
  for (const version of ['h2', 'http/1.1', 'h2-only'] as const) {
    versions.remember(origin('a'), version);
    versions.doubtHttp1(origin('a'));
    t.equal(versions.of(origin('a')), version);
  }
  versions.remember(origin('a'), 'http/1.1-required');
  versions.doubtHttp1(origin('a'));
  t.equal(versions.of(origin('a')), undefined);
  versions.remember(origin('b'), 'http/1.1-required');
  for (let index = 0; index < ORIGINS_REMEMBERED_MAX; index += 1) versions.remember(origin(`h${index}`), 'h2');
  t.equal(versions.of(origin('b')), undefined, 'the oldest makes room');
  t.end();
});
