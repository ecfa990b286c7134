// Attacks on the admin API and on the database beneath it.
import { openAdversaryScene, runAttacks } from '../support/adversary.ts';
import { ADMIN, checkUntouched, openAdminScene } from './attacks/admin.ts';
import { STORE } from './attacks/store.ts';

runAttacks(ADMIN, openAdminScene, checkUntouched);
runAttacks(STORE, () => openAdversaryScene());
