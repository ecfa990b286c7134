// Routes of /v1/emergency_stop: no secret leaves while it is active.
import type { EmergencyStop } from '../../model/ports.ts';
import { ADMIN_ONLY, READERS, type AdminApp, type AdminContext } from '../context.ts';
import { EmergencyStopSet, EmergencyStopWire } from '../schemas/admin-tokens.ts';
import { answers, BODY_CODES } from '../schemas/common.ts';

const tags = ['emergency stop'];

function toWire(stop: EmergencyStop): { type: 'emergency_stop'; active: boolean; reason: string | null } {
  return { type: 'emergency_stop', active: stop.active, reason: stop.reason };
}

export function registerEmergencyStopRoutes(app: AdminApp, context: AdminContext): void {
  const { emergencyStop } = context.store;

  app.get(
    '/v1/emergency_stop',
    {
      config: { access: READERS },
      schema: {
        ...{ tags, operationId: 'getEmergencyStop', summary: 'Whether the use of secrets is stopped' },
        response: answers(EmergencyStopWire, []),
      },
    },
    async () => toWire(await emergencyStop.get()),
  );

  app.post(
    '/v1/emergency_stop',
    {
      config: { access: ADMIN_ONLY },
      schema: {
        ...{ tags, operationId: 'setEmergencyStop', summary: 'Stop the use of all secrets, or lift the stop' },
        body: EmergencyStopSet,
        response: answers(EmergencyStopWire, BODY_CODES),
      },
    },
    async (request) => {
      const { active, reason } = request.body;
      const stop = await emergencyStop.set({ active, reason: reason ?? null });
      const action = active ? 'emergency_stop.activate' : 'emergency_stop.lift';
      context.recordWrite(request, { action, objectId: 'emergency_stop' });
      return toWire(stop);
    },
  );
}
