"""Values to text for people: tables, explanations, span trees, plots. Pure; nothing here reads, asks or prints."""
