"""Operations from their request to their outcome."""
