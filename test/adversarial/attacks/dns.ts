// Names whose answers lead inside, or change (the classifier sees what is dialled).
import type { AttackCase, AttackClass } from '../../support/adversary.ts';
import type { PlaneScene } from '../../support/adversary-plane.ts';

const DENIED = /^HTTP\/1\.1 403 [^]*"code":"address_denied"/;

/** The answers to one look-up after the other; the last one stays. */
function answers(name: string, expected: RegExp, ...replies: readonly (readonly string[])[]): AttackCase<PlaneScene> {
  return {
    name,
    expected,
    async attack(scene) {
      scene.setAnswers(replies);
      return scene.ask('rebound.test');
    },
  };
}

export const DNS: AttackClass<PlaneScene> = {
  name: 'dns',
  cases: [
    answers('an answer that is private', DENIED, ['10.0.0.1']),
    answers('an answer that is loopback', DENIED, ['127.0.0.1']),
    answers('an answer that is cloud metadata', DENIED, ['169.254.169.254']),
    answers('an answer that is IPv4-mapped', DENIED, ['::ffff:10.0.0.1']),
    answers('an answer that is nothing but IPv6 of this host', DENIED, ['::1']),
    answers(
      'only private answers, many of them',
      DENIED,
      Array.from({ length: 200 }, (_, index) => `10.0.0.${String(index)}`),
    ),
    answers('an answer that is no address', DENIED, ['not an address']),
    answers('an empty answer', /^HTTP\/1\.1 502 [^]*"code":"upstream_connect_failed"/, []),
    answers('a private answer beside a public one is not dialled', /^tunnel HTTP\/1\.1 50[24] /, [
      '127.0.0.1',
      '198.51.100.1',
      '93.184.216.34',
    ]),
    answers(
      'public at CONNECT, private at the dial',
      /^tunnel HTTP\/1\.1 403 [^]*"code":"address_denied"/,
      ['93.184.216.34'],
      ['127.0.0.1'],
    ),
    answers(
      'public at CONNECT, metadata at the dial',
      /^tunnel HTTP\/1\.1 403 [^]*"code":"address_denied"/,
      ['93.184.216.34'],
      ['169.254.169.254'],
    ),
  ],
};
