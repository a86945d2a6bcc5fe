-- Triggers that keep an admission inside its transaction. `PRAGMA ignore_check_constraints` does not disable them.
CREATE TRIGGER leasehold_reject_empty_insert BEFORE INSERT ON leasehold_empty
BEGIN SELECT RAISE(ABORT, 'CONFLICT: leasehold_empty stays empty, so that no admission outlives its transaction; write nothing to it'); END;

CREATE TRIGGER leasehold_check_admission BEFORE INSERT ON leasehold_admission BEGIN
  SELECT RAISE(ABORT, 'CONFLICT: an object named pragma_foreign_keys or pragma_defer_foreign_keys hides a setting; drop it')
    WHERE EXISTS (SELECT 1 FROM sqlite_schema WHERE lower(name) IN ('pragma_foreign_keys', 'pragma_defer_foreign_keys'));
  SELECT RAISE(ABORT, 'CONFIG: foreign_keys is OFF, protected tables need it; run PRAGMA foreign_keys = ON before BEGIN')
    WHERE (SELECT foreign_keys FROM pragma_foreign_keys) = 0;
  -- SQLite ends this setting with the transaction, so that a later one is not admitted by a row that was left.
  SELECT RAISE(ABORT, 'CONFIG: defer_foreign_keys is OFF, protected tables need it; run PRAGMA defer_foreign_keys = ON after BEGIN')
    WHERE (SELECT defer_foreign_keys FROM pragma_defer_foreign_keys) = 0;
  SELECT RAISE(ABORT, 'CONFLICT: leasehold_empty has a row, so an admission could outlive its transaction; delete the row')
    WHERE EXISTS (SELECT 1 FROM leasehold_empty);
  SELECT RAISE(ABORT, 'STALE_TOKEN: the number is not the current mark; insert a token into leasehold_admit instead')
    WHERE NOT EXISTS (SELECT 1 FROM leasehold_fence AS f
      WHERE f.resource = NEW.resource AND f.slot = NEW.slot AND f.state = 'armed' AND f.mark = NEW.number);
END;

-- The check of a token whose text was parsed.
CREATE TRIGGER leasehold_on_check INSTEAD OF INSERT ON leasehold_check BEGIN
  SELECT RAISE(ABORT, 'STORAGE_FAILED: missing: no mark is stored for this resource; if nothing was written yet, arm the fence')
    WHERE NOT EXISTS (SELECT 1 FROM leasehold_fence AS f WHERE f.name = NEW.name);
  SELECT RAISE(ABORT, 'TOKEN_INVALID: resource: the token is for another resource; present the token of the guarding resource')
    WHERE NOT EXISTS (SELECT 1 FROM leasehold_fence AS f WHERE f.name = NEW.name AND f.resource = NEW.resource);
  SELECT RAISE(ABORT, 'TOKEN_INVALID: slot: the token is for another slot; present the token of an armed slot')
    WHERE NOT EXISTS (SELECT 1 FROM leasehold_fence AS f WHERE f.resource = NEW.resource AND f.slot = NEW.slot);
  SELECT RAISE(ABORT, 'WRONG_CLUSTER: the token is from another cluster than the mark; acquire from the cluster of this database')
    FROM leasehold_fence AS f WHERE f.resource = NEW.resource AND f.slot = NEW.slot AND f.cluster <> NEW.cluster;
  SELECT RAISE(ABORT, 'STORAGE_FAILED: lost: the mark was declared lost; re-arm it with a number no holder was granted yet')
    FROM leasehold_fence AS f WHERE f.resource = NEW.resource AND f.slot = NEW.slot AND f.state = 'lost';
  SELECT RAISE(ABORT, 'TOKEN_IMPLAUSIBLE: the token is more than one day ahead of the clock; compare the clocks')
    WHERE NEW.number > (CAST(strftime('%s', 'now') AS INTEGER) * 1000 - 1735689600000 + 86400000) << 22;
  SELECT RAISE(ABORT, 'STALE_TOKEN: the token is below the mark, a later holder has claimed; stop, this lease has ended')
    FROM leasehold_fence AS f WHERE f.resource = NEW.resource AND f.slot = NEW.slot AND f.mark > NEW.number;
  SELECT RAISE(ABORT, 'NOT_ADOPTED: this strict fence follows another incarnation; adopt this one if the restore was intended')
    FROM leasehold_fence AS f
    WHERE f.resource = NEW.resource AND f.slot = NEW.slot AND f.strict AND f.incarnation <> NEW.incarnation;
  SELECT RAISE(ABORT, 'ALREADY_APPLIED: this sequence was applied before; write nothing and go on with the next')
    FROM leasehold_fence AS f
    WHERE f.resource = NEW.resource AND f.slot = NEW.slot AND f.mark = NEW.number AND f.sequence >= NEW.sequence;
  UPDATE leasehold_fence SET state = 'armed', mark = NEW.number, incarnation = NEW.incarnation,
      sequence = coalesce(NEW.sequence, CASE mark WHEN NEW.number THEN sequence END)
    WHERE resource = NEW.resource AND slot = NEW.slot;
  DELETE FROM leasehold_admission WHERE resource = NEW.resource AND slot = NEW.slot; -- also one that an earlier transaction left
  INSERT INTO leasehold_admission (resource, slot, number) SELECT NEW.resource, NEW.slot, NEW.number WHERE NEW.is_write
    AND EXISTS (SELECT 1 FROM leasehold_protected AS p WHERE p.resource = NEW.resource AND p.slot = NEW.slot);
END;
