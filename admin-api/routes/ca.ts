// Routes of /v1/ca: the certificate authority's roots, and its rotation in two steps.
import type { CaStatus } from '../../model/ports.ts';
import { ADMIN_ONLY, READERS, type AdminApp, type AdminContext } from '../context.ts';
import { CaWire, toCaWire } from '../schemas/ca.ts';
import { answers, BODY_CODES, EmptyBody } from '../schemas/common.ts';

const tags = ['ca'];

interface Step {
  readonly name: 'rotate' | 'retire';
  readonly operationId: string;
  readonly summary: string;
  run(): Promise<CaStatus>;
}

function registerStep(app: AdminApp, context: AdminContext, step: Step): void {
  app.post(
    `/v1/ca/${step.name}`,
    {
      config: { access: ADMIN_ONLY },
      schema: {
        ...{ tags, operationId: step.operationId, summary: step.summary },
        body: EmptyBody,
        response: answers(CaWire, BODY_CODES),
      },
    },
    async (request) => {
      const status = await step.run();
      context.recordWrite(request, { action: `ca.${step.name}`, objectId: 'ca' });
      return toCaWire(status);
    },
  );
}

export function registerCaRoutes(app: AdminApp, context: AdminContext): void {
  const { caControl } = context;

  app.get(
    '/v1/ca',
    {
      config: { access: READERS },
      schema: {
        ...{ tags, operationId: 'getCaStatus', summary: "The certificate authority's roots" },
        response: answers(CaWire, []),
      },
    },
    () => toCaWire(caControl.status()),
  );

  registerStep(app, context, {
    name: 'rotate',
    operationId: 'rotateCa',
    summary: 'Make the next root and export it beside the one that goes on signing',
    run: () => caControl.rotate(),
  });
  registerStep(app, context, {
    name: 'retire',
    operationId: 'retireCa',
    summary: 'Sign with the next root from now on, and drop the old one',
    run: () => caControl.retire(),
  });
}
