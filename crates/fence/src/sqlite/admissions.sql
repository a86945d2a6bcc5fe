-- Triggers that keep an admission inside its transaction. `PRAGMA ignore_check_constraints` does not disable them.
CREATE TRIGGER leasehold_reject_empty_insert BEFORE INSERT ON leasehold_empty
BEGIN SELECT RAISE(ABORT, 'CONFLICT: leasehold_empty stays empty, so that no admission outlives its transaction; write nothing to it'); END;

CREATE TRIGGER leasehold_check_admission BEFORE INSERT ON leasehold_admission BEGIN
  SELECT RAISE(ABORT, 'CONFLICT: an object named pragma_foreign_keys hides the setting of that name; drop it')
    WHERE EXISTS (SELECT 1 FROM sqlite_schema WHERE lower(name) = 'pragma_foreign_keys');
  SELECT RAISE(ABORT, 'CONFIG: foreign_keys is OFF, protected tables need it; run PRAGMA foreign_keys = ON before BEGIN')
    WHERE (SELECT foreign_keys FROM pragma_foreign_keys) = 0;
  SELECT RAISE(ABORT, 'CONFLICT: leasehold_empty has a row, so an admission could outlive its transaction; delete the row')
    WHERE EXISTS (SELECT 1 FROM leasehold_empty);
  SELECT RAISE(ABORT, 'STALE_TOKEN: the number is not the current mark; insert a token into leasehold_admit instead')
    WHERE NOT EXISTS (SELECT 1 FROM leasehold_fence AS f
      WHERE f.resource = NEW.resource AND f.slot = NEW.slot AND f.state = 'armed' AND f.mark = NEW.number);
END;
