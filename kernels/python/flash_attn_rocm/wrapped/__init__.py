"""Tensors around other tensors: jagged nested ones and DTensors."""
