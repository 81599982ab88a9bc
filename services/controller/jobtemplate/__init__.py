"""JobTemplates: which jobs were made from one (F05)."""
