import { test } from 'tap';
import { Attachment } from '../../proxy/attachment.ts';

test('a value goes with its object, and one attachment knows nothing of another', async (t) => {
  const [names, sizes] = [new Attachment<object, string>('same'), new Attachment<object, string>('same')];
  const [one, other] = [{}, {}];
  t.equal(names.get(one), undefined);
  names.set(one, 'first');
  names.set(one, 'second');
  sizes.set(one, 'large');
  t.equal(names.get(one), 'second');
  t.equal(names.get(other), undefined);
  names.delete(one);
  names.delete(other);
  t.equal(names.get(one), undefined);
  t.equal(sizes.get(one), 'large');
  t.same(Object.keys(one), [], 'nothing that goes through its properties sees it');
});
