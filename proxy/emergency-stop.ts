// Emergency stop: while it is active, whatever would need a secret is refused, and all else goes on.
import { KeyveilError } from '../model/errors.ts';
import type { PolicyCredential, SessionPolicy } from '../model/ports.ts';

const stopped = new WeakMap<SessionPolicy, SessionPolicy>();

function refuseToOpen(): never {
  throw new KeyveilError(
    'emergency_stop',
    'The operator has stopped all use of credentials. Requests that need none still work; try again later.',
  );
}

function withoutValues(policy: SessionPolicy): SessionPolicy {
  const credentials = policy.credentials.map((credential): PolicyCredential => ({ ...credential, open: refuseToOpen }));
  return { ...policy, credentials };
}

/**
 * The policy as the swap may use it: the same one, or, under an emergency stop, one whose values can't be opened. So
 * every place that needs a value refuses the request, and none has to remember to ask.
 */
export function regardEmergencyStop(policy: SessionPolicy): SessionPolicy {
  if (!policy.emergencyStop.active) return policy;
  let copy = stopped.get(policy);
  if (copy === undefined) stopped.set(policy, (copy = withoutValues(policy)));
  return copy;
}
