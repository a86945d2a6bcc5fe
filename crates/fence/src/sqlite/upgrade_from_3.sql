-- Upgrade from version 3 to 4: replaces the checks of admissions, and ends those that outlived their transaction. Marks are preserved.
DROP TRIGGER leasehold_reject_empty_insert;
DROP TRIGGER leasehold_check_admission;
DROP TRIGGER leasehold_on_check;
DELETE FROM leasehold_admission;
DELETE FROM leasehold_empty;
UPDATE leasehold_schema SET version = 4;
