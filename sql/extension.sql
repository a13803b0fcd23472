-- The extension is there, with the version of its control file.
SELECT extname, extversion FROM pg_extension WHERE extname = 'nitro';
