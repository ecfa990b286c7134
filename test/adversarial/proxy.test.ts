// Attacks on the data plane.
import { openAdversaryScene, runAttacks } from '../support/adversary.ts';
import { DESTINATION, PORTS } from './attacks/destination.ts';
import { FRAMING } from './attacks/framing.ts';
import { IDENTITY } from './attacks/identity.ts';
import { SWAP } from './attacks/swap.ts';
import { TLS } from './attacks/tls.ts';

// Own ports must be refused where loopback is allowed, so the operator's list does not stand before them.
runAttacks(DESTINATION, () => openAdversaryScene());
runAttacks(PORTS, () => openAdversaryScene({ environment: { KEYVEIL_ALLOWED_PORTS: '80,443,8443' } }));
runAttacks(IDENTITY, () => openAdversaryScene());
runAttacks(FRAMING, () => openAdversaryScene());
runAttacks(TLS, () => openAdversaryScene());
runAttacks(SWAP, () => openAdversaryScene());
