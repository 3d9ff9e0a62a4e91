"""The backend: it turns a schedule into statements of C, stage by stage."""
