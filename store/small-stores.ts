// The emergency stop and the daemon's own plain settings in SQLite.
import type { EmergencyStop, EmergencyStopStore, Settings } from '../model/ports.ts';
import { read, write, type ControlContext } from './control-context.ts';
import type { Database } from './database.ts';

interface EmergencyStopRow {
  readonly active: number;
  readonly reason: string | null;
}

/** Reads the stop; a missing row stops, since absent means deny. */
export function createEmergencyStopReader(database: Database): () => EmergencyStop {
  const select = database.prepare<[], EmergencyStopRow>('SELECT active, reason FROM emergency_stop');
  return () => {
    const row = select.get();
    return { active: row?.active !== 0, reason: row?.reason ?? null };
  };
}

export function createEmergencyStopStore(context: ControlContext): EmergencyStopStore {
  const readStop = createEmergencyStopReader(context.database);
  const save = context.database.prepare<[number, string | null]>(
    'INSERT INTO emergency_stop (one, active, reason) VALUES (1, ?, ?) ON CONFLICT (one) DO UPDATE SET active = excluded.active, reason = excluded.reason',
  );
  return {
    get: () => read(context, readStop),
    set: (stop) =>
      write(context, () => {
        save.run(Number(stop.active), stop.reason);
        return readStop();
      }),
  };
}

export function createSettings(context: ControlContext): Settings {
  const { database } = context;
  const select = database.prepare<[string], string>('SELECT value FROM settings WHERE name = ?').pluck();
  const save = database.prepare<[string, string]>(
    'INSERT INTO settings (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value',
  );
  const remove = database.prepare<[string]>('DELETE FROM settings WHERE name = ?');
  return {
    get: (name) => read(context, () => select.get(name) ?? null),
    async put(name, value) {
      await write(context, () => save.run(name, value));
    },
    async delete(name) {
      await write(context, () => remove.run(name));
    },
  };
}
