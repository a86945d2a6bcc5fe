-- Upgrade from version 2 to 3: replaces the checks of admissions, and ends those that outlived their transaction. Marks are preserved.
DROP TRIGGER leasehold_check_admission;
DELETE FROM leasehold_admission;
DELETE FROM leasehold_empty;
UPDATE leasehold_schema SET version = 3;
