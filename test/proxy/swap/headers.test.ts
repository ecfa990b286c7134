// Scanner, plan, header fields, trailers, Basic logins and request targets.
import { test } from 'tap';
import { HEADER_BLOCK_BYTES_MAX, SWAP_PLANS_PER_POLICY_MAX } from '../../../model/limits.ts';
import { headerFormOf } from '../../../proxy/swap/escaping.ts';
import { findUrlMisses, swapHeaders } from '../../../proxy/swap/headers.ts';
import { compileSwapPlan, type SwapPlan } from '../../../proxy/swap/plan.ts';
import { createScanner, holdsMarker } from '../../../proxy/swap/scanner.ts';
import { placeholderOf, sessionPolicy, type CredentialInput } from '../../support/policies.ts';
import { planOfVector, substitutionVectors } from './vectors.ts';

const ONE = placeholderOf('One');
const TWO = placeholderOf('Two');
const TARGET = { host: 'api.test', scheme: 'https' } as const;

function planOf(...credentials: CredentialInput[]): SwapPlan {
  return compileSwapPlan(sessionPolicy(credentials), TARGET) as SwapPlan;
}

function basic(login: string): string {
  return `Basic ${Buffer.from(login).toString('base64')}`;
}

test('every header of the vectors is swapped as they say', async (t) => {
  for (const vector of substitutionVectors()) {
    const { headers } = swapHeaders(vector.headers, planOfVector(vector), 'header');
    const untouchedByBody = (list: readonly string[]): string =>
      JSON.stringify(
        list.filter((_, index) => (list[index - (index % 2)] as string).toLowerCase() !== 'content-encoding'),
      );
    t.equal(untouchedByBody(headers), untouchedByBody(vector.expectedHeaders), vector.name);
  }
});

test('a list in which nothing is swapped is given back as it is', async (t) => {
  const plan = planOf({ placeholder: ONE, value: 'real' });
  for (const headers of [
    ['Accept', '*/*'],
    ['Authorization', basic('user:password')],
    ['X-A', 'kvph_short'],
  ]) {
    const result = swapHeaders(headers, plan, 'header');
    t.equal(result.headers, headers);
    t.same([result.swaps, result.misses, result.basicTokens, [...result.sensitiveNames]], [[], [], [], []]);
  }
});

test('what was swapped is counted by credential and field, and the field is sensitive', async (t) => {
  const plan = planOf({ placeholder: ONE, value: 'real-1' }, { placeholder: TWO, value: 'réal' });
  const result = swapHeaders(['X-One', `${ONE} ${ONE}`, 'x-Two', TWO, 'X-One', ONE, 'Accept', '*'], plan, 'header');
  t.same(result.headers, ['X-One', 'real-1 real-1', 'x-Two', 'r\u00c3\u00a9al', 'X-One', 'real-1', 'Accept', '*']);
  t.same(result.swaps, [
    {
      credentialId: 'vcrd_1',
      secretName: 'SECRET_1',
      secretVersion: 1,
      location: 'header',
      count: 3,
      headerName: 'X-One',
    },
    {
      credentialId: 'vcrd_2',
      secretName: 'SECRET_2',
      secretVersion: 1,
      location: 'header',
      count: 1,
      headerName: 'x-Two',
    },
  ]);
  t.same([...result.sensitiveNames], ['x-one', 'x-two']);
});

test('fields that frame the message and pseudo-headers stay', async (t) => {
  const plan = planOf({ placeholder: ONE, value: 'real' });
  const names = [
    'Host',
    'CONTENT-LENGTH',
    'Transfer-Encoding',
    'Connection',
    'Upgrade',
    'TE',
    'Trailer',
    'Expect',
    ':path',
  ];
  const headers = names.flatMap((name) => [name, ONE]);
  const result = swapHeaders(headers, plan, 'header');
  t.equal(result.headers, headers);
  t.same(result.misses, []);
});

test('a Basic login is swapped inside and both of its tokens are reported', async (t) => {
  const plan = planOf({ placeholder: ONE, value: 'user-1' }, { placeholder: TWO, value: 'pass:ä' });
  const original = basic(`${ONE}:${TWO}`);
  const result = swapHeaders(['Authorization', original], plan, 'header');
  t.same(result.headers, ['Authorization', basic('user-1:pass:ä')]);
  t.same(
    result.basicTokens,
    ['vcrd_1', 'vcrd_2'].map((credentialId) => ({
      credentialId,
      sent: basic('user-1:pass:ä').slice(6),
      original: original.slice(6),
    })),
  );
  t.same(
    result.swaps.map(({ location, headerName, count }) => [location, headerName, count]),
    [
      ['basic', 'Authorization', 1],
      ['basic', 'Authorization', 1],
    ],
  );
});

test('a Basic token that is not padded standard base64 is text', async (t) => {
  const plan = planOf({ placeholder: ONE, value: 'real' });
  const unpadded = basic(`us:${ONE}`).replace(/=+$/, '');
  for (const value of [unpadded, `Basic ${ONE}==`, `${unpadded} ${ONE}`, `Basic\t${ONE}`]) {
    const { headers } = swapHeaders(['Authorization', value], plan, 'header');
    t.equal(headers[1], value.replace(ONE, 'real'));
  }
  t.equal(swapHeaders(['Proxy-Thing-13', basic(`u:${ONE}`)], plan, 'header').headers[1], basic(`u:${ONE}`));
  t.equal(swapHeaders(['X-Authorizing', basic(`u:${ONE}`)], plan, 'header').headers[1], basic(`u:${ONE}`));
});

test('trailers are swapped like header fields and carry no field name in the record', async (t) => {
  const plan = planOf({ placeholder: ONE, value: 'real' });
  const result = swapHeaders(['X-Sum', ONE, 'Authorization', basic(`u:${ONE}`)], plan, 'trailer');
  t.same(result.headers, ['X-Sum', 'real', 'Authorization', basic('u:real')]);
  t.same(result.swaps, [
    { credentialId: 'vcrd_1', secretName: 'SECRET_1', secretVersion: 1, location: 'trailer', count: 2 },
  ]);
});

test('what is not swapped goes out literally with its reason, once for each place', async (t) => {
  const archived = [{ credentialId: 'vcrd_9', secretName: 'OLD', placeholder: placeholderOf('Old') }];
  const policy = sessionPolicy(
    [
      { placeholder: ONE, value: 'real', hosts: ['other.test'] },
      { placeholder: TWO, value: 'real', header: false },
    ],
    archived,
  );
  const headers = ['X-A', `${ONE}${TWO}${placeholderOf('Old')}${ONE}`, 'Authorization', basic(`u:${ONE}`)];
  const result = swapHeaders(headers, compileSwapPlan(policy, TARGET) as SwapPlan, 'header');
  t.equal(result.headers, headers);
  t.same(
    result.misses.map(({ credentialId, location, reason }) => [credentialId, location, reason]),
    [
      ['vcrd_1', 'header', 'host_not_covered'],
      ['vcrd_2', 'header', 'location_disabled'],
      ['vcrd_9', 'header', 'credential_archived'],
      ['vcrd_1', 'basic', 'host_not_covered'],
    ],
  );
  const plain = swapHeaders(
    headers,
    compileSwapPlan(policy, { host: 'other.test', scheme: 'http' }) as SwapPlan,
    'header',
  );
  t.equal(plain.headers, headers);
  t.same(plain.misses[0]?.reason, 'plain_http');
});

test('a field in which one is swapped and another missed keeps the literal of the other', async (t) => {
  const plan = planOf({ placeholder: ONE, value: 'real' }, { placeholder: TWO, value: 'x', header: false });
  const result = swapHeaders(['X-A', `${TWO},${ONE},${TWO}`], plan, 'header');
  t.same(result.headers, ['X-A', `${TWO},real,${TWO}`]);
});

test('a value with a control character, or one that can not be opened, refuses the request', async (t) => {
  const control = planOf({ placeholder: ONE, value: 'a\r\nb' });
  t.throws(() => swapHeaders(['X-A', ONE], control, 'header'), { code: 'swap_value_refused', status: 502 });
  t.throws(() => swapHeaders(['Authorization', basic(`u:${ONE}`)], control, 'header'), { code: 'swap_value_refused' });
  const unreadable = planOf({ placeholder: ONE, value: null });
  t.throws(() => swapHeaders(['X-A', ONE], unreadable, 'header'), { code: 'credential_unreadable', status: 502 });
});

test('a block that grows beyond the limit is refused, without building it first', async (t) => {
  const plan = planOf({ placeholder: ONE, value: 'v'.repeat(32 * 1024) }, { placeholder: TWO, value: 'w'.repeat(40) });
  const many = Array.from({ length: 1000 }, () => ONE).join(' ');
  t.throws(() => swapHeaders(['X-A', many], plan, 'header'), { code: 'header_too_large', status: 431 });
  t.throws(() => swapHeaders(['X-A', ONE, 'X-B', ONE], plan, 'header'), { code: 'header_too_large' });
  const room = HEADER_BLOCK_BYTES_MAX - 'X-A: \r\nX-P: \r\n'.length - 40;
  const exact = ['X-A', TWO, 'X-P', 'p'.repeat(room)];
  t.equal(swapHeaders(exact, plan, 'header').headers[1], 'w'.repeat(40));
  t.throws(() => swapHeaders([...exact.slice(0, 3), 'p'.repeat(room + 1)], plan, 'header'), {
    code: 'header_too_large',
  });
});

test('placeholders in the target are misses of the path or of the query', async (t) => {
  const archived = [{ credentialId: 'vcrd_9', secretName: 'OLD', placeholder: placeholderOf('Old') }];
  const plan = compileSwapPlan(sessionPolicy([{ placeholder: ONE, value: 'real' }], archived), TARGET) as SwapPlan;
  const places = (target: string): unknown => findUrlMisses(target, plan).map((miss) => [miss.location, miss.reason]);
  t.same(places('/v1/items?limit=2'), []);
  t.same(places(`/v1/${ONE}/x`), [['path', 'in_url']]);
  t.same(places(`/v1/${ONE}/x?key=${ONE}&again=${ONE}`), [
    ['path', 'in_url'],
    ['query', 'in_url'],
  ]);
  t.same(places(`/?k=${placeholderOf('Old')}`), [['query', 'credential_archived']]);
});

test('plans are kept with the policy and its host, and their number is bounded', async (t) => {
  t.equal(compileSwapPlan(sessionPolicy([]), TARGET), null);
  const policy = sessionPolicy([{ placeholder: ONE, value: 'real' }]);
  const plan = compileSwapPlan(policy, TARGET);
  t.equal(compileSwapPlan(policy, { host: 'api.test', scheme: 'https' }), plan);
  t.not(compileSwapPlan(policy, { host: 'api.test', scheme: 'http' }), plan);
  for (let number = 0; number < SWAP_PLANS_PER_POLICY_MAX; number += 1) {
    compileSwapPlan(policy, { host: `h${String(number)}.test`, scheme: 'https' });
  }
  t.not(compileSwapPlan(policy, TARGET), plan, 'the oldest was let go');
  t.same([plan?.swapsBody, plan?.observesBody], [true, false]);
  const headerOnly = planOf({ placeholder: ONE, value: 'real', body: false });
  t.same([headerOnly.swapsBody, headerOnly.observesBody], [false, true]);
});

test('a stored placeholder of another form refuses the session, and an archived one has no value', async (t) => {
  t.throws(() => planOf({ placeholder: 'kvph_short', value: 'x' }), { code: 'credential_unreadable' });
  const archived = [{ credentialId: 'vcrd_9', secretName: 'OLD', placeholder: ONE }];
  const plan = compileSwapPlan(sessionPolicy([], archived), TARGET) as SwapPlan;
  t.throws(() => headerFormOf(plan.entries[0] as never), { code: 'credential_unreadable' });
});

test('the scanner takes the leftmost placeholder, and the longest prefix at one marker', async (t) => {
  const random = 'R'.repeat(28) + 'kvph';
  const scanner = createScanner([
    `kvph_${random}`,
    `kvph_kvph_${random}`,
    `ab-kvph_${'S'.repeat(32)}`,
    `vph_kvph_${random}`,
  ]);
  const found = (text: string): unknown[] => {
    const matches: unknown[] = [];
    for (let match = scanner.find(text, 0); match !== null; match = scanner.find(text, match.end))
      matches.push([match.start, match.index]);
    t.same(
      matches,
      (() => {
        const inBytes: unknown[] = [];
        const bytes = Buffer.from(text);
        for (let match = scanner.find(bytes, 0); match !== null; match = scanner.find(bytes, match.end))
          inBytes.push([match.start, match.index]);
        return inBytes;
      })(),
    );
    return matches;
  };
  t.same(found(`x kvph_${random}`), [[2, 0]]);
  t.same(found(`kvph_kvph_${random}`), [[0, 1]]);
  t.same(found(`vph_kvph_${random}`), [[0, 3]]);
  t.same(found(`kvph_${'S'.repeat(32)}`), []);
  t.same(found(`kvph_${random}_${'S'.repeat(32)}`), [[0, 0]], 'the marker that overlaps its end begins nothing');
  t.same(
    found(`kvph_${random}kvph_${random}`),
    [
      [0, 0],
      [37, 0],
    ],
    'the prefix of the second belongs to the first',
  );
  t.same(found('kvph_'), []);
  t.equal(holdsMarker('a kvph_'), true);
  t.equal(holdsMarker(Buffer.from('a kvph')), false);
});

test('only what may begin a placeholder is held back', async (t) => {
  const plain = createScanner([ONE, TWO]);
  const held = (text: string, scanner = plain, from = 0): string =>
    text.slice(scanner.heldFrom(Buffer.from(text), from));
  t.equal(held(''), '');
  t.equal(held('some text'), '');
  t.equal(held('some k'), 'k');
  t.equal(held('some kvph'), 'kvph');
  t.equal(held('some kvph_'), 'kvph_');
  t.equal(held('some kvph_One'), 'kvph_One');
  t.equal(held(`some ${ONE.slice(0, -1)}`), ONE.slice(0, -1));
  t.equal(held(`some ${ONE}`), '', 'a whole one is not held');
  t.equal(held('some kvph_On e'), '');
  t.equal(held('some kvph_Onkv'), 'kvph_Onkv');
  t.equal(held('kvph_One', plain, 1), '');
  const prefixed = createScanner([placeholderOf('P', 'sk-')]);
  t.equal(held('x s', prefixed), 's');
  t.equal(held('x sk-kv', prefixed), 'sk-kv');
  t.equal(held('x sk-kvph_PP', prefixed), 'sk-kvph_PP');
  t.equal(held('x kvph_PP', prefixed), '', 'without its prefix it is text');
  t.equal(createScanner([]).heldFrom(Buffer.from('kvph_'), 0), 5);
});
