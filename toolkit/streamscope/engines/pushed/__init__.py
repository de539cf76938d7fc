"""Operations that are pushed one by one, without a program: the dynamic engine, its events and its memory."""
